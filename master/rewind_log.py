"""What a data set remembers of its rewinds. Pure."""

from dataclasses import dataclass
from typing import Any

from master.bounds import capped

MAX_REWINDS = 1 << 15
"""Rewinds of a data set: attempts of leases must stay numbers that trainers can report."""
_ATTEMPTS = 1 << 36


@dataclass(slots=True)
class RewindLog:
    """The rewinds of one data set."""

    count: int = 0
    identity: str = ""
    """Stands for the newest: the same call again changes nothing."""
    newest_records: int = 0
    """Records that the newest one set back."""
    newest_steps: int = 0
    generation: int = 0
    """The newest generation of parameter servers for which the data set was set back,"""
    ticket: int = 0
    """and the ticket of the trainer that started it."""
    redone_records: int = 0
    """Records that all of them together set back: they are trained again."""

    @property
    def base(self) -> int:
        """Attempts of leases since the newest rewind are greater than this."""
        return self.count * _ATTEMPTS

    def is_before(self, attempt: int) -> bool:
        """Whether a lease was granted before the newest rewind: what it trained is lost."""
        return self.count > 0 and attempt <= self.base

    @property
    def key(self) -> tuple[int, int]:
        """Where the newest one is in the order of those of parameter servers."""
        return self.generation, self.ticket

    def add(self, identity: str, key: tuple[int, int], records: int, steps: int) -> None:
        """Notes a rewind."""
        self.count += 1
        self.identity, self.newest_records, self.newest_steps = identity, records, steps
        self.generation, self.ticket = max(key, self.key)
        self.redone_records = capped(self.redone_records + records)

    def dump(self) -> list[Any]:
        """The rewinds as snapshots have them: the fields of this class, in order."""
        newest = [self.identity, self.newest_records, self.newest_steps]
        return [self.count, *newest, *self.key, self.redone_records]
