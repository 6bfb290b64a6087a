"""What was lost when servers went back to a checkpoint: counted once, whoever knows of it.

A server that lived knows how far it was. One that was killed does not; then workers do, each as far
as its own last answer went. What a later one knows beyond the others is counted when it comes.
"""

from collections import deque
from typing import Any

from pserver.shard import Counts

_NEWEST = 20
NOTHING = Counts(0, 0)


class Setbacks:
    """Of one server, since its start."""

    def __init__(self) -> None:
        self.count = 0
        self.lost = NOTHING
        """In all."""
        self._newest: deque[dict[str, Any]] = deque(maxlen=_NEWEST)
        self._before = 0
        """The generation of which something was lost last."""
        self._reached = NOTHING
        """How far it is known to have been, or what was gone back to."""

    def fell(self, before: int, base: Counts, reached: Counts, reason: str) -> Counts:
        """The servers went back.

        Args:
            before: The generation that ended.
            base: What was gone back to.
            reached: How far it was, as far as is known here.
            reason: Of the setback.

        Returns:
            What was lost.
        """
        self._before, self._reached = before, base
        lost = self._beyond(reached)
        if lost != NOTHING or before:
            self.count += 1
            self._newest.append({"generation": before, "reason": reason, **lost._asdict()})
        return lost

    def late(self, generation: int, seen: Counts) -> Counts:
        """A worker tells how far it knows an ended generation to have been.

        Returns:
            What was lost beyond that which was counted before.
        """
        if generation != self._before or not self._newest:
            return NOTHING
        lost = self._beyond(seen)
        newest = self._newest[-1]
        newest["version"] += lost.version
        newest["records"] += lost.records
        return lost

    def last(self) -> dict[str, Any]:
        """The newest: its generation and reason, and all that is known to be lost by it."""
        return _told(self._newest[-1])

    def told(self) -> dict[str, Any]:
        """For the status."""
        newest = [_told(one) for one in self._newest]
        steps, records = self.lost
        return {"count": self.count, "steps": steps, "records": records, "newest": newest}

    def _beyond(self, seen: Counts) -> Counts:
        if seen.version <= self._reached.version:
            return NOTHING
        before, self._reached = self._reached, seen
        lost = Counts(seen.version - before.version, max(0, seen.records - before.records))
        self.lost = Counts(self.lost.version + lost.version, self.lost.records + lost.records)
        return lost


def _told(one: dict[str, Any]) -> dict[str, Any]:
    kept = {name: one[name] for name in ("generation", "reason", "records")}
    return {**kept, "steps": one["version"]}
