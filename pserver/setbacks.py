"""By how many versions a server went back to a checkpoint, as far as anybody knows.

A server that lived knows how far it was. One that was killed does not; then workers do, each as far
as its own last answer went. What a later one knows beyond the others is added when it comes.

This is a bound. Pushes whose version no worker has seen are missing in it, and it holds pushes that
were on their way, which come again. Workers tell the job's master which of their own pushes were
lost; it counts with both (`master.setbacks`).
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

from pserver.shard import Counts

_NEWEST = 20
NOTHING = Counts(0, 0)


@dataclass(slots=True)
class _Setback:
    generation: int
    """The one that ended."""
    reason: str
    base: Counts
    """What was gone back to."""
    reached: Counts
    """How far it is known to have been."""

    @property
    def lost(self) -> Counts:
        version = max(0, self.reached.version - self.base.version)
        return Counts(version, max(0, self.reached.records - self.base.records) if version else 0)

    def told(self) -> dict[str, Any]:
        steps, records = self.lost
        return {
            "generation": self.generation,
            "reason": self.reason,
            "steps": steps,
            "records": records,
        }


class Setbacks:
    """Of one server, since its start."""

    def __init__(self) -> None:
        self.count = 0
        self._over = NOTHING
        """Lost by those that are not among the newest any more."""
        self._newest: deque[_Setback] = deque()

    @property
    def lost(self) -> Counts:
        """In all."""
        each = [self._over, *(one.lost for one in self._newest)]
        return Counts(sum(one.version for one in each), sum(one.records for one in each))

    def fell(self, generation: int, base: Counts, reached: Counts, reason: str) -> None:
        """The servers went back.

        Args:
            generation: The one that ended; 0 where there was none.
            base: What was gone back to.
            reached: How far it was, as far as is known here.
            reason: Of the setback.
        """
        if not generation:
            return
        self.count += 1
        self._newest.append(_Setback(generation, reason, base, reached))
        if len(self._newest) > _NEWEST:
            gone = self._newest.popleft().lost
            self._over = Counts(
                self._over.version + gone.version, self._over.records + gone.records
            )

    def late(self, generation: int, seen: Counts) -> None:
        """A worker tells how far it knows an ended generation to have been."""
        for one in self._newest:
            if one.generation == generation:
                one.reached = max(one.reached, seen)

    def of(self, generation: int) -> dict[str, Any] | None:
        """How a generation ended, and what is known to be lost with it; None if it is unknown."""
        found = [one for one in self._newest if one.generation == generation]
        return found[-1].told() if found else None

    def told(self) -> dict[str, Any]:
        """For the status."""
        steps, records = self.lost
        newest = [one.told() for one in self._newest]
        return {"count": self.count, "steps": steps, "records": records, "newest": newest}
