"""When a checkpoint is due, and which versions are pinned for evaluations. Pure; time is told."""

from typing import NamedTuple

from pserver.memory import Floats
from pserver.model import Rules
from pserver.table import Seen

MOST_PINS = 2


class Saving:
    """Looks after the time since the last checkpoint."""

    def __init__(self, version: int, now_s: float) -> None:
        """As if one had just been made.

        Args:
            version: At the begin.
            now_s: Likewise.
        """
        self.version, self.at_s = version, now_s

    def due(self, rules: Rules, version: int, now_s: float) -> bool:
        """Whether another one should be made."""
        made = version - self.version
        if rules.checkpoint_steps and made >= rules.checkpoint_steps:
            return True
        seconds = rules.checkpoint_seconds
        return bool(seconds and made and now_s - self.at_s >= seconds)

    def done(self, version: int, now_s: float) -> None:
        """One was made."""
        self.version, self.at_s = max(self.version, version), now_s


class Pin(NamedTuple):
    """A version that is kept as it is."""

    view: int
    version: int
    dense: Floats
    tables: dict[str, Seen]
