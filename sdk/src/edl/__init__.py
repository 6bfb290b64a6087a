"""Elastic training loops: records leased from the job's master, trained, then acknowledged.

```python
data = edl.from_arrays("digits", images, labels)
for x, y in edl.batches(data, 32, epochs=2):
    train(x, y)
```
"""

from edl import records
from edl.batches import Batches, batches
from edl.checkpoints import Checkpoint, latest_checkpoint, read_checkpoint, save_checkpoint
from edl.errors import (
    CheckpointError,
    DataError,
    EdlError,
    MasterError,
    RecordError,
    Refused,
    RoundOver,
    SettingError,
    TrainingError,
    Unavailable,
)
from edl.evaluation import ask_evaluation, evaluation
from edl.export import Export
from edl.process import session
from edl.rounds import Rounds
from edl.session import Session
from edl.settings import Settings
from edl.sources import (
    Dataset,
    Source,
    from_arrays,
    from_csv,
    from_files,
    from_function,
    from_records,
)

__all__ = [
    "Batches",
    "Checkpoint",
    "CheckpointError",
    "DataError",
    "Dataset",
    "EdlError",
    "Export",
    "MasterError",
    "RecordError",
    "Refused",
    "RoundOver",
    "Rounds",
    "Session",
    "SettingError",
    "Settings",
    "Source",
    "TrainingError",
    "Unavailable",
    "ask_evaluation",
    "batches",
    "evaluation",
    "from_arrays",
    "from_csv",
    "from_files",
    "from_function",
    "from_records",
    "latest_checkpoint",
    "read_checkpoint",
    "records",
    "save_checkpoint",
    "session",
]
