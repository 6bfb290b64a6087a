"""The model interface: a user's file says model, loss, optimizer and feed, and nothing of trainers.

```python
found = edl.model.load("model.py")
replica = edl.model.replica(found, seed=1)
edl.sync.train(replica, edl.model.data("train.npz"), 64, code=found.code)
```
"""

from edl.model.adapter import evaluate, export, predict, replica, worker
from edl.model.data import count, data
from edl.model.errors import ModelError, OutOfMemory, UserCodeError
from edl.model.outline import check
from edl.model.program import Model, load
from edl.model.restoring import restore

__all__ = [
    "Model",
    "ModelError",
    "OutOfMemory",
    "UserCodeError",
    "check",
    "count",
    "data",
    "evaluate",
    "export",
    "load",
    "predict",
    "replica",
    "restore",
    "worker",
]
