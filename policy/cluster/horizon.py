"""Leaving pods count if they are due to be gone when new ones could start."""

from math import inf
from typing import NamedTuple

LATE_S = 5.0
"""How much later than due a leaving pod may end: kubelets need seconds to clean up."""


class Horizon(NamedTuple):
    """The span in which a leaving pod must be due, for its capacity to count as coming."""

    since_s: float
    """A pod that was due before is stuck: on a lost node, on a volume, on a finalizer."""
    until_s: float
    """A pod that is due later is drained slowly; trainers leave sooner."""

    @classmethod
    def of(cls, now_s: float, grace_s: float) -> "Horizon":
        """Returns the span at `now_s`, where trainers have `grace_s` to leave."""
        return cls(now_s - LATE_S, now_s + grace_s + LATE_S)


ALWAYS = Horizon(-inf, inf)
"""Leaving pods count whenever they are due."""
