"""The priority classes of training pods, one for each tier. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from policy.names import CLASS_GUARANTEED, CLASS_SUPPORT, CLASS_SURPLUS, Tier


class PriorityClassValues(NamedTuple):
    """The fields of a scheduling.k8s.io/v1 `PriorityClass` that must be copied into pods."""

    value: int
    preemption_policy: str = "PreemptLowerPriority"
    is_default: bool = False
    """Whether the API server assigns this class to pods that name none."""


EDL_CLASSES: Mapping[str, PriorityClassValues] = {
    CLASS_SURPLUS: PriorityClassValues(-1000, "Never"),
    CLASS_GUARANTEED: PriorityClassValues(-8),
    CLASS_SUPPORT: PriorityClassValues(-5),
}
"""The classes as EDL creates them (design: priority tiers). A patch copies the live ones."""

CLASS_OF: Mapping[Tier, str] = {
    Tier.SURPLUS: CLASS_SURPLUS,
    Tier.GUARANTEED: CLASS_GUARANTEED,
    Tier.SUPPORT: CLASS_SUPPORT,
}
"""Tier -> name of its class."""
