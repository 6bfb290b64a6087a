"""The rollbacks of a server: how many versions were lost by returning to a checkpoint. Pure.

A surviving server knows its progress. A killed server does not; workers report the progress in its last
answers, and each later report may raise the number.

The number is an estimate. It lacks pushes whose version no worker has seen, and includes pushes in
flight, which are sent again. Workers report to the job's master which of their pushes were lost; the
master uses the estimate and these reports (`master.rollbacks`).
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

from pserver.shard import ShardCounts

_NEWEST = 20
NOTHING = ShardCounts(0, 0)


@dataclass(slots=True)
class _Rollback:
    generation: int
    """The generation that ended."""
    reason: str
    base: ShardCounts
    """Progress of the checkpoint that was restored."""
    reached: ShardCounts
    """Known progress of the generation that ended."""

    @property
    def lost(self) -> ShardCounts:
        version = max(0, self.reached.version - self.base.version)
        return ShardCounts(
            version, max(0, self.reached.records - self.base.records) if version else 0
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "reason": self.reason,
            "steps": self.lost.version,
            "records": self.lost.records,
        }


class ServerRollbacks:
    """The rollbacks of one server since its start; details of the newest 20."""

    def __init__(self) -> None:
        self.count = 0
        self._over = NOTHING
        """Losses of rollbacks without stored details."""
        self._newest: deque[_Rollback] = deque()

    @property
    def lost(self) -> ShardCounts:
        """Versions and records lost by all rollbacks."""
        losses = [self._over, *(rollback.lost for rollback in self._newest)]
        return ShardCounts(
            sum(loss.version for loss in losses), sum(loss.records for loss in losses)
        )

    def record(self, generation: int, base: ShardCounts, reached: ShardCounts, reason: str) -> None:
        """Records a rollback.

        Args:
            generation: The generation that ended; 0 if there was none.
            base: Progress of the checkpoint that was restored.
            reached: Known progress of the generation that ended.
            reason: Why the servers rolled back.
        """
        if not generation:
            return
        self.count += 1
        self._newest.append(_Rollback(generation, reason, base, reached))
        if len(self._newest) > _NEWEST:
            oldest_loss = self._newest.popleft().lost
            self._over = ShardCounts(
                self._over.version + oldest_loss.version, self._over.records + oldest_loss.records
            )

    def record_late_report(self, generation: int, reached: ShardCounts) -> None:
        """Records the progress that a worker observed in an ended generation."""
        for rollback in self._newest:
            if rollback.generation == generation:
                rollback.reached = max(rollback.reached, reached)

    def of_generation(self, generation: int) -> dict[str, Any] | None:
        """Returns the rollback that ended a generation, as JSON; None if it is unknown."""
        rollbacks = [rollback for rollback in self._newest if rollback.generation == generation]
        return rollbacks[-1].to_json() if rollbacks else None

    def to_json(self) -> dict[str, Any]:
        """Returns the rollback section of the status."""
        steps, records = self.lost
        newest = [rollback.to_json() for rollback in self._newest]
        return {"count": self.count, "steps": steps, "records": records, "newest": newest}
