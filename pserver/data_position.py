"""Which records the parameters contain (decision 0032): kept by server 0, for its checkpoints. Pure.

A position of the master's ledger, of which the parameters contain everything, and the tasks that were
pushed since. The servers do not look into either; trainers set the data back with them.
"""

from collections.abc import Iterable, Mapping

from edl_protocol.frames import Json

MAX_TASKS = 1 << 16
"""Tasks that are listed; without checkpoints the list is never renewed."""


class DataPosition:
    """The position in the data of the served parameters."""

    def __init__(self) -> None:
        """The position of parameters that were never trained."""
        self.is_known = True
        """Whether it is known; trainers of earlier versions report nothing."""
        self.ledger: Json | None = None
        """The position of the master's ledger; None is the beginning."""
        self.remaining: dict[str, int] = {}
        """Task -> records of its end that were not pushed, of tasks that were begun since."""

    def push(self, remaining: Mapping[str, int]) -> None:
        """Notes the tasks of a push that was applied, with what is left of each."""
        self.remaining.update(remaining)
        if len(self.remaining) <= MAX_TASKS:
            return
        self.is_known = False
        self.remaining = {task: records for task, records in self.remaining.items() if records}
        while len(self.remaining) > MAX_TASKS:
            del self.remaining[next(iter(self.remaining))]

    def renew(self, ledger: Json, settled: Iterable[str]) -> None:
        """Continues from a later position of the ledger.

        Args:
            ledger: Asked for before now: the parameters contain all of it.
            settled: Tasks that it has as done.
        """
        self.ledger, self.is_known = ledger, True
        for task in settled:
            self.remaining.pop(task, None)

    def dump(self) -> Json:
        """Returns the position as JSON."""
        return {"known": self.is_known, "ledger": self.ledger, "remaining": dict(self.remaining)}

    def load(self, dumped: Json | None) -> None:
        """Restores what `dump` returned; files of earlier versions have None."""
        if dumped is None:
            self.is_known = False
            return
        self.is_known, self.ledger = bool(dumped["known"]), dumped["ledger"]
        self.remaining = {str(task): int(records) for task, records in dumped["remaining"].items()}
