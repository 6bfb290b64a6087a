"""Elastic training loops over records that the job's master leases until they are acknowledged.

```python
data = edl.from_arrays("digits", images, labels)
for x, y in edl.batches(data, 32, epochs=2):
    train(x, y)
```
"""

from edl.data.batches import Batches, batches
from edl.data.checkpoints import Checkpoint, latest_checkpoint, read_checkpoint, save_checkpoint
from edl.data.evaluation import ask_evaluation, evaluation
from edl.data.export import Export
from edl.data.snapshots import Snapshot, Snapshots
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
from edl.master.protocol import Round
from edl.master.rounds import Rounds
from edl.master.session import Session, session
from edl.master.settings import Settings
from edl.sources import (
    Dataset,
    Source,
    from_arrays,
    from_csv,
    from_files,
    from_function,
    from_records,
)
from edl.sources import record_format as records

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
    "Round",
    "RoundOver",
    "Rounds",
    "Session",
    "SettingError",
    "Settings",
    "Snapshot",
    "Snapshots",
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
