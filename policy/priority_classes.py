"""The priority classes of training pods: one for each tier, and a second one for the surplus tier. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from policy.names import (
    CLASS_GUARANTEED,
    CLASS_LOW_SHARE,
    CLASS_SUPPORT,
    CLASS_SURPLUS,
    Tier,
)


class PriorityClassValues(NamedTuple):
    """The fields of a scheduling.k8s.io/v1 `PriorityClass` that must be copied into pods."""

    value: int
    preemption_policy: str = "PreemptLowerPriority"
    is_default: bool = False
    """Whether the API server assigns this class to pods without a class."""


EDL_CLASSES: Mapping[str, PriorityClassValues] = {
    CLASS_SURPLUS: PriorityClassValues(-1000, "Never"),
    CLASS_LOW_SHARE: PriorityClassValues(-900, "Never"),
    CLASS_GUARANTEED: PriorityClassValues(-8),
    CLASS_SUPPORT: PriorityClassValues(-5),
}
"""The classes as EDL creates them (design: priority tiers). Pods get the values of the live classes."""

CLASS_OF: Mapping[Tier, str] = {
    Tier.SURPLUS: CLASS_SURPLUS,
    Tier.GUARANTEED: CLASS_GUARANTEED,
    Tier.SUPPORT: CLASS_SUPPORT,
}
"""Tier -> name of its class."""

TIER_OF: Mapping[str, Tier] = {name: tier for tier, name in CLASS_OF.items()} | {
    CLASS_LOW_SHARE: Tier.SURPLUS
}
"""Name of a class -> tier of its pods."""


def class_of(tier: Tier, *, low_share: bool = False) -> str:
    """Returns the priority class of a new pod.

    Args:
        tier: The tier of the pod.
        low_share: Only for surplus pods; see `policy.planning.plan.Create`.
    """
    return CLASS_LOW_SHARE if low_share else CLASS_OF[tier]
