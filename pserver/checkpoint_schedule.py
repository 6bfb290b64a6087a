"""When a checkpoint is due, and versions pinned for evaluations. Pure; callers pass the time."""

from typing import NamedTuple

from edl_protocol.pserver import Rules

from pserver.memory import Floats
from pserver.table import TableView

MAX_PINS = 2


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
        """Whether a checkpoint is due."""
        steps = version - self.version
        if rules.checkpoint_steps and steps >= rules.checkpoint_steps:
            return True
        seconds = rules.checkpoint_seconds
        return bool(seconds and steps and now_s - self.at_s >= seconds)

    def committed(self, version: int, now_s: float) -> None:
        """Records a committed checkpoint."""
        self.version, self.at_s = max(self.version, version), now_s


class Pin(NamedTuple):
    """A version of the parameters that is kept unchanged for an evaluation."""

    view: int
    version: int
    dense: Floats
    tables: dict[str, TableView]
