"""The policy document: what a cluster admin writes, one YAML document in one ConfigMap.

Every field has a default, so an empty document is a valid policy. Unknown fields are refused
by name. Who reads it: every room, through the active `Policy` value; nobody reads the YAML.
"""

import re
from datetime import time
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from policy import quantity
from policy.names import Role

VERSION: Literal["edl.training/v1"] = "edl.training/v1"

Fraction = Annotated[float, Field(gt=0.0, le=1.0)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Seconds = Annotated[float, Field(ge=0.0, le=86_400.0)]


def _check_amount(text: str) -> str:
    """A quantity, or a share of the cluster such as "5%"; raises QuantityError (a ValueError)."""
    if text.endswith("%"):
        share = text[:-1]
        if not share.isdecimal() or int(share) > 100:  # noqa: PLR2004 - per cent
            raise ValueError(f"{text!r} is no share; write 0% to 100%")
        return text
    if quantity.parse("memory", text) < 0:
        raise ValueError(f"{text!r} is negative")
    return text


def _check_quantity(text: str) -> str:
    if text.endswith("%"):
        raise ValueError(f"{text!r}: a quota is an amount such as 100 or 400Gi, not a share")
    return _check_amount(text)


Amount = Annotated[str, AfterValidator(_check_amount)]
Quantity = Annotated[str, AfterValidator(_check_quantity)]


class _Model(BaseModel):
    """Frozen, camelCase outside and snake_case inside, no unknown fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
    )


class Selector(_Model):
    """Names pods by namespace and labels; both must match. `*` and `?` are wildcards."""

    namespaces: tuple[Name, ...] = ("*",)
    labels: dict[Name, str] = Field(default_factory=dict)
    """Label -> pattern; every one must be present and match."""

    def matches(self, namespace: str, labels: dict[str, str]) -> bool:
        """Whether a pod of `namespace` with `labels` is meant."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.namespaces) and all(
            name in labels and fnmatchcase(labels[name], pattern)
            for name, pattern in self.labels.items()
        )


class Training(Selector):
    """Pods of other operators that are training: made low-priority and preemptible too."""

    name: Name
    role: Role = Role.TRAINER

    @model_validator(mode="after")
    def _names_something(self) -> "Training":
        if not self.labels and "*" in self.namespaces:
            raise ValueError(
                "would make every pod of the cluster preemptible; name labels or namespaces"
            )
        return self


class Tiers(_Model):
    """How training pods give way."""

    grace_seconds: Annotated[int, Field(ge=1, le=600)] = 10
    """Cap on terminationGracePeriodSeconds of training pods: reclaim waits for it."""


class Reserve(_Model):
    """Capacity that training leaves free, so that small bursts need no reclaim at all."""

    max_load: dict[Name, Fraction] = Field(default_factory=lambda: {"cpu": 0.97})
    """Resource -> share of the cluster's allocatable that training may fill up to."""
    headroom: dict[Name, Amount] = Field(default_factory=dict)
    """Resource -> amount, or share such as "5%", kept free on top of max_load."""


class FairnessBy(StrEnum):
    """What is made equal between jobs."""

    DOMINANT_SHARE = "dominantShare"
    FULFILMENT = "fulfilment"


class Fairness(_Model):
    """How surplus is shared: weighted max-min by one of two measures."""

    by: FairnessBy = FairnessBy.DOMINANT_SHARE
    queue_weights: dict[Name, Annotated[int, Field(ge=1, le=1000)]] = Field(default_factory=dict)
    """Queue -> weight, multiplied with a job's own; a queue not named weighs 1."""


class Quota(_Model):
    """A ceiling on what the trainers of one namespace or queue may have together."""

    namespace: Name | None = None
    queue: Name | None = None
    requests: dict[Name, Quantity] = Field(default_factory=dict)
    """Resource -> the most that they request."""
    limits: dict[Name, Quantity] = Field(default_factory=dict)
    """Resource -> the most that their limits come to; where one has none, its request counts."""

    @model_validator(mode="after")
    def _one_scope(self) -> "Quota":
        if (self.namespace is None) == (self.queue is None):
            raise ValueError("name exactly one of namespace and queue")
        if not (self.requests or self.limits):
            raise ValueError("bounds nothing; give requests, limits or both")
        return self


class Sizes(_Model):
    """Which numbers of trainers jobs may have, for frameworks that want even splits."""

    namespaces: tuple[Name, ...] = ("*",)
    allowed: tuple[Annotated[int, Field(ge=1)], ...] = ()
    step: Annotated[int, Field(ge=1)] = 1
    powers_of_two: bool = False

    @model_validator(mode="after")
    def _one_rule(self) -> "Sizes":
        if (bool(self.allowed) + (self.step > 1) + self.powers_of_two) != 1:
            raise ValueError("give exactly one of allowed, step (2 or more) and powersOfTwo")
        return self


_CLOCK_TIME = re.compile(r"\d{2}:\d{2}(:\d{2})?")

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEKDAYS: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Window(_Model):
    """A daily span in which other load limits hold: day for serving, night for training.

    A span whose end is not after its start runs past midnight and belongs to the day it
    starts on.
    """

    name: Name
    days: tuple[Weekday, ...] = WEEKDAYS
    start: time
    end: time
    time_zone: Name = "UTC"
    max_load: dict[Name, Annotated[float, Field(ge=0.0, le=1.0)]]
    """Replaces reserve.maxLoad inside the span; 0 lets no surplus trainer run."""

    @field_validator("start", "end", mode="before")
    @classmethod
    def _clock_time(cls, value: object) -> object:
        # YAML 1.1 reads 22:00 without quotes as the number 1320: 22 minutes past midnight.
        if (isinstance(value, str) and _CLOCK_TIME.fullmatch(value)) or isinstance(value, time):
            return value
        raise ValueError(f'{value!r} is no time of day; write it in quotes: "22:00"')

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(
                f"{zone!r} is no time zone; write for example Asia/Shanghai"
            ) from error
        return zone


class Stability(_Model):
    """What keeps trainers where they are."""

    gain_threshold: Annotated[float, Field(ge=0.0, le=10.0)] = 0.2
    """A trainer moves between jobs only where the giver has this much more, relatively."""
    min_run_seconds: Seconds = 15.0
    """A trainer younger than this is not moved for fairness."""
    cool_down_seconds: Seconds = 5.0
    """After a node gave capacity back, no trainer is added there for this long."""
    max_moves: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Share of all trainers that may be on the move for fairness at one time (at least 1)."""
    withdraw_after_seconds: Seconds = 3.0
    """A surplus trainer that found no node for this long is taken back."""


class NodePool(_Model):
    """Nodes that trainers may use. With no pool at all, they may use every node."""

    name: Name
    labels: dict[Name, str] = Field(default_factory=dict)


class Policy(_Model):
    """The whole document."""

    api_version: Literal["edl.training/v1"] = VERSION
    kind: Literal["Policy"] = "Policy"
    tiers: Tiers = Tiers()
    training: tuple[Training, ...] = ()
    reserve: Reserve = Reserve()
    fairness: Fairness = Fairness()
    quotas: tuple[Quota, ...] = ()
    sizes: tuple[Sizes, ...] = ()
    windows: tuple[Window, ...] = ()
    stability: Stability = Stability()
    node_pools: tuple[NodePool, ...] = ()
    protected_namespaces: tuple[Name, ...] = ("kube-*",)
    """Namespaces whose pods are never training, whatever labels they carry."""

    def protects(self, namespace: str) -> bool:
        """Whether pods of `namespace` are out of reach."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.protected_namespaces)

    def training_role(self, namespace: str, labels: dict[str, str]) -> Role | None:
        """The role that the first matching training selector gives a pod, or None."""
        for selector in self.training:
            if selector.matches(namespace, labels):
                return selector.role
        return None
