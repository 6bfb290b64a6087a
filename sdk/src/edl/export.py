"""What one trainer does at the very end of a job, such as writing the model for serving."""

from __future__ import annotations

from collections.abc import Callable

from edl.batches import Batches
from edl.process import session
from edl.session import Session
from edl.sources.function import from_function

NAME = "export"
_DESCRIPTION = {
    "records": 1,
    "task_records": 1,
    "epochs": 1,
    "shuffle_seed": None,
    "kind": "export",
    "overlap": False,
}


class Export:
    """The job's last task. Make one before the first loop: the job is not done without it.

    ```python
    export = edl.Export()
    for x, y in edl.batches(data, 32):
        train(x, y)
    export.run(lambda: model.save("model"))
    ```
    """

    def __init__(self, *, member: Session | None = None) -> None:
        """Announces it to the master.

        Args:
            member: This trainer's session; the process's by default.
        """
        self._member = session() if member is None else member
        self._member.join()
        self._member.describe(NAME, _DESCRIPTION)

    def run(self, act: Callable[[], object]) -> bool:
        """Waits until all data sets are done; then one trainer acts, and the others until it has.

        If it dies or `act` raises, another trainer acts.

        Returns:
            Whether this trainer was the one.
        """
        acted = False
        data = from_function(NAME, _number, 1)
        with Batches(data, 1, _DESCRIPTION, 1, self._member) as loop:
            for _ in loop:
                act()
                acted = True
        return acted


def _number(number: int) -> int:
    return number
