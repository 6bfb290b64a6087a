"""Asynchronous training with parameter servers, in which trainers do not wait for each other.

```python
result = edl.servers.train(worker, data, 64, epochs=3, shuffle_seed=1)
```

See decision 0012. Needs numpy.
"""

from edl.servers.client import PserverClient, PushOutcome
from edl.servers.errors import (
    GenerationChanged,
    NonFiniteGradient,
    RequestRefused,
    ServersError,
    ServersUnavailable,
)
from edl.servers.loop import train
from edl.servers.options import Step, TrainingResult
from edl.servers.parameter_reader import ParameterReader
from edl.servers.snapshot import ParameterSnapshot, connect, fetch
from edl.servers.worker import Gradients, Lookup, Worker
from edl_protocol.pserver import Rules, Table

__all__ = [
    "GenerationChanged",
    "Gradients",
    "Lookup",
    "NonFiniteGradient",
    "ParameterReader",
    "ParameterSnapshot",
    "PserverClient",
    "PushOutcome",
    "RequestRefused",
    "Rules",
    "ServersError",
    "ServersUnavailable",
    "Step",
    "Table",
    "TrainingResult",
    "Worker",
    "connect",
    "fetch",
    "train",
]
