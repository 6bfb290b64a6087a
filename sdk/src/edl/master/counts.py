"""What a trainer has trained, in numbers. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counts:
    """Numbers of records (and tasks, steps) of this trainer since its start."""

    trained: int = 0
    acknowledged: int = 0
    wasted: int = 0
    """Trained, but their task was lost, failed or handed back: they are trained again."""
    failed: int = 0
    """Tasks."""
    steps: int = 0

    def summary(self, handed_back: int) -> str:
        """In words, for the end of a line; "" where the trainer leased nothing.

        Of the members of a group only the leader leases, under a name of the group.
        """
        if not (self.trained or handed_back):
            return ""
        return (
            f": {self.trained} records trained, {self.acknowledged} acknowledged, "
            f"{self.wasted} wasted, {handed_back} tasks handed back"
        )
