"""Synchronous training that continues while trainers come and go (decision 0011).

```python
edl.sync.train(replica, data, batch_size=256, epochs=3, shuffle_seed=1)
```
"""

from edl.sync.engine import train
from edl.sync.options import SyncResult, SyncStep
from edl.sync.replica import Micro, Replica, State

__all__ = ["Micro", "Replica", "State", "SyncResult", "SyncStep", "train"]
