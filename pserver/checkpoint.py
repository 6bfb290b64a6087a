"""Checkpoints: their names, what is stored, and when the next is due. Pure; callers pass the time."""

from typing import NamedTuple

from pserver.model import Model, Rules

SHUTDOWN_VERSION = (1 << 53) - 1
"""The version under which a server writes its checkpoint at shutdown."""


class CheckpointName(NamedTuple):
    """The name of a checkpoint; a newer checkpoint has a greater name."""

    generation: int
    version: int
    """Server 0's version when the checkpoint was started."""
    of: int
    """Number of servers that wrote the checkpoint."""

    @property
    def folder(self) -> str:
        """Name of the folder with its files."""
        return f"{self.generation:06d}-{self.version:016d}"


class StoredCheckpoint(NamedTuple):
    """A checkpoint whose files that this server needs are complete."""

    name: CheckpointName
    records: int
    model: Model


class CheckpointSchedule:
    """The schedule of checkpoints: due after a number of versions or seconds since the last one."""

    def __init__(self, version: int, now_s: float) -> None:
        """Starts as if a checkpoint had just been committed.

        Args:
            version: The version now.
            now_s: The time now.
        """
        self.version, self.at_s = version, now_s

    def is_due(self, rules: Rules, version: int, now_s: float) -> bool:
        """Returns whether a checkpoint is due."""
        steps = version - self.version
        if rules.checkpoint_steps and steps >= rules.checkpoint_steps:
            return True
        seconds = rules.checkpoint_seconds
        return bool(seconds and steps and now_s - self.at_s >= seconds)

    def committed(self, version: int, now_s: float) -> None:
        """Records a committed checkpoint."""
        self.version, self.at_s = max(self.version, version), now_s
