"""Asynchronous training with parameter servers: trainers pull, compute and push as they please.

```python
result = edl.servers.train(worker, data, 64, epochs=3, shuffle_seed=1)
```

Decision 0012. Needs numpy.
"""

from edl.servers.errors import Away, BadGradient, Declined, Moved, ServersError
from edl.servers.final import Final, connect, fetch
from edl.servers.fleet import Pushed, Servers
from edl.servers.loop import train
from edl.servers.options import Result, Rules, Step
from edl.servers.reader import Reader
from edl.servers.worker import Gradients, Lookup, Table, Worker

__all__ = [
    "Away",
    "BadGradient",
    "Declined",
    "Final",
    "Gradients",
    "Lookup",
    "Moved",
    "Pushed",
    "Reader",
    "Result",
    "Rules",
    "Servers",
    "ServersError",
    "Step",
    "Table",
    "Worker",
    "connect",
    "fetch",
    "train",
]
