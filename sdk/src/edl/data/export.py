"""The export at the end of a job: one trainer runs it, for example to write the model for serving."""

from __future__ import annotations

from collections.abc import Callable

from edl.data.batches import Batches
from edl.master.session import Session, session
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
    """The last task of a job; create it before the first loop, so that the job includes it.

    ```python
    export = edl.Export()
    for x, y in edl.batches(data, 32):
        train(x, y)
    export.run(lambda: model.save("model"))
    ```
    """

    def __init__(self, *, member: Session | None = None) -> None:
        """Announces the export to the master.

        Args:
            member: This trainer's session; the process's session by default.
        """
        self._member = session() if member is None else member
        self._member.join()
        self._member.describe(NAME, _DESCRIPTION)

    def run(self, act: Callable[[], object]) -> bool:
        """Waits until all data sets are done; then one trainer calls `act` and the others wait.

        If this trainer dies or `act` raises an error, another trainer calls `act`.

        Returns:
            Whether this trainer completed the export.
        """
        is_exporter = False
        data = from_function(NAME, int, 1)
        with Batches(data, 1, _DESCRIPTION, self._member, prefetch=1) as loop:
            for _ in loop:
                act()
                is_exporter = True
        return is_exporter
