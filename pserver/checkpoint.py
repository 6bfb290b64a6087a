"""Checkpoints: their names and descriptions, and when the next one is due. Pure; time is passed in."""

from typing import NamedTuple

from edl_protocol.pserver import Model, Rules

SHUTDOWN_VERSION = (1 << 53) - 1
"""The version in the name of a checkpoint that a server writes at shutdown."""


class CheckpointName(NamedTuple):
    """The name of a checkpoint; a newer checkpoint has a greater name."""

    generation: int
    version: int
    """Server 0's version when the checkpoint was started."""
    of: int
    """Number of servers that wrote the checkpoint."""

    @property
    def folder(self) -> str:
        """Name of the folder with the files."""
        return f"{self.generation:06d}-{self.version:016d}"


class StoredCheckpoint(NamedTuple):
    """A checkpoint; all files that this server needs are complete."""

    name: CheckpointName
    records: int
    model: Model


class CheckpointSchedule:
    """Decides when a checkpoint is due: a number of versions or of seconds after the last checkpoint."""

    def __init__(self, version: int, now_s: float) -> None:
        """Creates the schedule, as if a checkpoint had just been committed.

        Args:
            version: The current version.
            now_s: The current time.
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
