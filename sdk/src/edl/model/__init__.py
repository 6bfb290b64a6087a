"""The model interface: a user's file defines model, loss, optimizer and feed, without a training loop.

```python
model = edl.model.load("model.py")
replica = edl.model.replica(model, seed=1)
edl.sync.train(replica, edl.model.data("train.npz"), 64, code=model.code)
```
"""

from edl.model import metrics
from edl.model.adapter import evaluate, export, finish, predict, replica, worker
from edl.model.data import count, data
from edl.model.errors import ModelError, OutOfMemory, UserCodeError
from edl.model.restoring import restore
from edl.model.static_check import check
from edl.model.user_code import check_records
from edl.model.user_file import Model, load

__all__ = [
    "Model",
    "ModelError",
    "OutOfMemory",
    "UserCodeError",
    "check",
    "check_records",
    "count",
    "data",
    "evaluate",
    "export",
    "finish",
    "load",
    "metrics",
    "predict",
    "replica",
    "restore",
    "worker",
]
