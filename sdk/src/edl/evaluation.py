"""Evaluations of a model version, shared by all trainers, summed up by the master.

```python
edl.ask_evaluation(held_out, model_version=3)
loop = edl.batches(held_out, 64, kind="evaluation")
for x, y in loop:
    loop.report(accuracy=accuracy(load(loop.model_version), x, y))
edl.evaluation(3)["rounds"][0]["metrics"]["accuracy"]
```
"""

from __future__ import annotations

from edl import wire
from edl.process import session
from edl.session import Session
from edl.sources.base import Dataset


def ask_evaluation(dataset: Dataset, model_version: int, *, member: Session | None = None) -> None:
    """Asks for one more evaluation of a data set that was described with kind "evaluation".

    Raises:
        Refused: The master knows no such data set.
    """
    found = session() if member is None else member
    found.control().evaluate(model_version, dataset.name)


def evaluation(model_version: int, *, member: Session | None = None) -> wire.Json:
    """What is known of it: metrics are means over the records that were evaluated so far.

    Raises:
        Refused: Nobody asked for it.
    """
    found = session() if member is None else member
    return found.control().evaluation(model_version)
