"""Evaluates a model version on all trainers; the master combines their metrics.

```python
edl.ask_evaluation(held_out, model_version=3)
loop = edl.batches(held_out, 64, kind="evaluation")
for x, y in loop:
    loop.report(accuracy=accuracy(load(loop.model_version), x, y))
edl.evaluation(3)["rounds"][0]["metrics"]["accuracy"]
```
"""

from __future__ import annotations

from edl.master import protocol
from edl.master.session import Session, session
from edl.sources.base import Dataset


def ask_evaluation(dataset: Dataset, model_version: int, *, member: Session | None = None) -> None:
    """Requests an evaluation on a data set that was described with kind "evaluation".

    Args:
        dataset: The data set to evaluate on.
        model_version: The version to evaluate; its number appears in the loops of all trainers.
        member: This trainer's session; the process's session by default.

    Raises:
        Refused: The master does not know this data set as one for evaluations.
    """
    caller = session() if member is None else member
    caller.control().evaluate(model_version, dataset.name)


def evaluation(model_version: int, *, member: Session | None = None) -> protocol.Json:
    """Returns the state of an evaluation; its metrics are means over the records evaluated so far.

    Raises:
        Refused: The evaluation was not requested.
    """
    caller = session() if member is None else member
    return caller.control().evaluation(model_version)
