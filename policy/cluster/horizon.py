"""Which leaving pods count as gone: those that are due to end by the time new pods could start."""

from math import inf
from typing import NamedTuple

LATE_S = 5.0
"""How much later than its due time a leaving pod may end: kubelets need seconds to clean up."""


class Horizon(NamedTuple):
    """The span of time in which a leaving pod must be due for its capacity to count as available soon."""

    since_s: float
    """A pod that was due earlier is stuck: on a lost node, on a volume or on a finalizer."""
    until_s: float
    """A pod that is due later has a long grace period; trainers leave sooner."""

    @classmethod
    def of(cls, now_s: float, grace_s: float) -> "Horizon":
        """Returns the span at `now_s`, if trainers have a grace period of `grace_s`."""
        return cls(now_s - LATE_S, now_s + grace_s + LATE_S)


ALWAYS = Horizon(-inf, inf)
"""The span in which all leaving pods count, whenever they are due."""
