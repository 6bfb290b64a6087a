"""The policy document of a cluster admin: one YAML document in one ConfigMap.

Every field has a default, so an empty document is a valid policy. Unknown fields are rejected by
name. All components read it through the active `Policy` value and not as YAML.
"""

import re
from datetime import time
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator, model_validator

from policy.document.model_fields import (
    Amount,
    Fraction,
    Name,
    PolicyPart,
    Seconds,
    Weight,
    labels_match,
)
from policy.document.queue_model import Overcommit, Queue, Quota
from policy.names import DEFAULT_SCHEDULER, Role

VERSION: Literal["edl.training/v1"] = "edl.training/v1"


class Selector(PolicyPart):
    """Selects pods by namespace and labels; both must match. `*` and `?` are wildcards."""

    namespaces: tuple[Name, ...] = ("*",)
    """Patterns of the pods' namespaces."""
    labels: dict[Name, str] = Field(default_factory=dict)
    """Label -> pattern; every one must be present and match."""

    def matches(self, namespace: str, labels: dict[str, str]) -> bool:
        """Whether it selects a pod of `namespace` with `labels`."""
        selected = any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)
        return selected and labels_match(labels, self.labels)


class Training(Selector):
    """A selector of other operators' training pods, which become low-priority and preemptible."""

    name: Name
    """Your name for it."""
    role: Role = Role.TRAINER
    """What the selected pods are in their job."""

    @model_validator(mode="after")
    def _names_something(self) -> "Training":
        if not self.labels and "*" in self.namespaces:
            raise ValueError(
                "would make every pod of the cluster preemptible; name labels or namespaces"
            )
        return self


class Tiers(PolicyPart):
    """Settings of the preemption of training pods."""

    grace_seconds: Annotated[int, Field(ge=1, le=600)] = 10
    """Cap on terminationGracePeriodSeconds of training pods, because reclaim waits for it."""


class ExtenderUse(StrEnum):
    """Whether training pods request the marker for which kube-scheduler calls the extender."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class SchedulerSettings(PolicyPart):
    """Settings of the scheduler that training pods use."""

    extender: ExtenderUse = ExtenderUse.AUTO
    scheduler_name: Name = DEFAULT_SCHEDULER
    """The `schedulerName` of training pods whose author has named none."""


class Reserve(PolicyPart):
    """Capacity that training leaves free, so that small bursts need no reclaim."""

    max_load: dict[Name, Fraction] = Field(default_factory=lambda: {"cpu": 0.97})
    """Resource -> share of the cluster's allocatable above which training must not grow."""
    headroom: dict[Name, Amount] = Field(default_factory=dict)
    """Resource -> amount, or share such as "5%", that stays free in addition to maxLoad."""


class FairnessBy(StrEnum):
    """The measure that fairness equalises between jobs."""

    DOMINANT_SHARE = "dominantShare"
    FULFILMENT = "fulfilment"


class Fairness(PolicyPart):
    """Settings of the sharing of surplus: weighted max-min fairness by one of two measures."""

    by: FairnessBy = FairnessBy.DOMINANT_SHARE
    queue_weights: dict[Name, Weight] = Field(default_factory=dict)
    """Queue -> weight, multiplied by a job's own; an unlisted queue has weight 1."""
    max_weight: Weight = 1000
    """The highest weight of a job; a larger one counts as this."""


class Sizes(PolicyPart):
    """Allowed numbers of trainers, for frameworks that need even splits."""

    namespaces: tuple[Name, ...] = ("*",)
    """Patterns of the namespaces whose jobs it is for."""
    allowed: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """These numbers alone, and the minimum."""
    step: Annotated[int, Field(ge=1)] = 1
    """Multiples of this, and the minimum."""
    powers_of_two: bool = False
    """Powers of two, and the minimum."""

    @model_validator(mode="after")
    def _one_rule(self) -> "Sizes":
        if (bool(self.allowed) + (self.step > 1) + self.powers_of_two) != 1:
            raise ValueError("give exactly one of allowed, step (2 or more) and powersOfTwo")
        return self


_CLOCK_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?")

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEKDAYS: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Window(PolicyPart):
    """A daily period with load limits of its own, such as a night for training.

    A period whose end is not after its start runs past midnight and belongs to the day on which
    it starts.
    """

    name: Name
    """Your name for it."""
    days: Annotated[tuple[Weekday, ...], Field(min_length=1)] = WEEKDAYS
    """On which it starts."""
    start: time
    """Time of day, in quotes: "22:00"."""
    end: time
    """Time of day, in quotes."""
    time_zone: Name = "UTC"
    """Of the times, such as Asia/Shanghai."""
    max_load: dict[Name, Annotated[float, Field(ge=0.0, le=1.0)]]
    """Replaces reserve.maxLoad during the period; 0 allows no surplus trainer."""

    @field_validator("start", "end", mode="before")
    @classmethod
    def _clock_time(cls, value: object) -> object:
        # YAML 1.1 reads 22:00 without quotes as the number 1320: 22 minutes past midnight.
        if (isinstance(value, str) and _CLOCK_TIME.fullmatch(value)) or isinstance(value, time):
            return value
        raise ValueError(
            f'{value!r} is not a time of day; write it in quotes: "22:00", or "00:00" for midnight'
        )

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # Europe is a directory
            raise ValueError(
                f"{zone!r} is not a time zone; write for example Asia/Shanghai"
            ) from error
        return zone


class Stability(PolicyPart):
    """Limits on moving trainers between jobs."""

    gain_threshold: Annotated[float, Field(ge=0.0, le=10.0)] = 0.2
    """A trainer moves between jobs only where the donor's share is larger by this fraction."""
    min_run_seconds: Seconds = 15.0
    """A trainer younger than this is not moved for fairness."""
    cool_down_seconds: Seconds = 5.0
    """Time after a reclaim on a node during which no trainer is added there."""
    max_moves: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Fraction of all trainers that may be on the move for fairness at one time (at least 1)."""
    withdraw_after_seconds: Seconds = 3.0
    """A surplus trainer that waits for a node longer than this is released."""


class NodeRequests(StrEnum):
    """How a job whose minimum fits nowhere asks a cluster autoscaler for nodes."""

    NONE = "none"
    PENDING_PODS = "pendingPods"
    """Its guaranteed trainers are created without a node; autoscalers add nodes for pending pods."""


class Autoscaling(PolicyPart):
    """Whether and when a job's minimum makes the cluster grow. Surplus never does."""

    mode: NodeRequests = NodeRequests.NONE
    queues: dict[Name, NodeRequests] = Field(default_factory=dict)
    """Queue -> mode, for jobs of that queue."""
    after_seconds: Seconds = 30.0
    """How long a job waits for capacity before it asks for nodes."""
    timeout_seconds: Annotated[float, Field(ge=60.0, le=86_400.0)] = 1200.0
    """How long its trainers wait for nodes before they are taken back."""
    max_jobs: Annotated[int, Field(ge=1, le=1000)] = 4
    """Jobs that may wait for nodes at one time."""
    vacate: dict[Name, str] = Field(default_factory=dict)
    """Label -> pattern; surplus leaves nodes with all of them that nothing else needs."""
    vacate_after_seconds: Seconds = 60.0
    """How long a node must not be needed before surplus leaves it."""

    def mode_of(self, queue: str) -> NodeRequests:
        """The mode of jobs in `queue`; "" for jobs without one."""
        return self.queues.get(queue, self.mode)


class AdmissionOrder(StrEnum):
    """What happens to younger jobs while an older one waits for room for its minimum."""

    BEST_EFFORT = "bestEffort"
    """They start where they fit."""
    STRICT_FIFO = "strictFifo"
    """After a while they do not start on nodes that the older one may use."""


class Admission(PolicyPart):
    """The order in which jobs start."""

    order: AdmissionOrder = AdmissionOrder.BEST_EFFORT
    after_seconds: Seconds = 300.0
    """How long a minimum waits for room before nodes are held for it."""
    hold_seconds: Annotated[float, Field(ge=60.0, le=86_400.0)] = 3600.0
    """How long they are held at most. After a hold in vain none begins for as long as it was."""


class ReclaimCause(StrEnum):
    """What a service waited for before it ran (metric `service_start_seconds`); of several the last."""

    FREE = "free"
    """Nothing: kube-scheduler found room with its first attempt."""
    WAITED = "waited"
    """Room, which came without EDL: other pods ended, or a node was added."""
    RELEASED = "released"
    """Trainers that EDL released for it."""
    PREEMPTED = "preempted"
    """Victims of kube-scheduler's preemption."""


class ReclaimObjective(PolicyPart):
    """How soon services run that need capacity of training: a share of them within a time."""

    share: Annotated[float, Field(gt=0.0, lt=1.0)]
    """Of the services, such as 0.95; the rest is the budget."""
    seconds: Annotated[float, Field(gt=0.0, le=3600.0)]
    """From a service pod's creation until its containers run."""
    window_hours: Annotated[int, Field(ge=1, le=168)] = 24
    """The time over which the share is taken."""
    causes: Annotated[tuple[ReclaimCause, ...], Field(min_length=1)] = (
        ReclaimCause.RELEASED,
        ReclaimCause.PREEMPTED,
    )
    """Which services count: those that waited for this."""


class Objectives(PolicyPart):
    """What EDL is measured by."""

    reclaim: ReclaimObjective | None = None
    """How soon services run that take capacity of training; nothing is measured against it without one."""


class NodePool(PolicyPart):
    """A set of nodes that trainers may use. Without any pool they may use every node."""

    name: Name
    """Your name for it."""
    labels: dict[Name, str] = Field(default_factory=dict)
    """Label -> value; nodes with all of them belong to it."""


class Policy(PolicyPart):
    """The whole policy document."""

    api_version: Literal["edl.training/v1"] = VERSION
    """The version of the document; one of another version is refused."""
    kind: Literal["Policy"] = "Policy"
    """What the document is."""
    tiers: Tiers = Tiers()
    scheduling: SchedulerSettings = SchedulerSettings()
    training: tuple[Training, ...] = ()
    reserve: Reserve = Reserve()
    fairness: Fairness = Fairness()
    queues: tuple[Queue, ...] = ()
    """All queues that jobs may name; without any, jobs may name every queue."""
    quotas: tuple[Quota, ...] = ()
    overcommit: tuple[Overcommit, ...] = ()
    """Rules of which the first that selects a job lowers the requests of its trainers."""
    sizes: tuple[Sizes, ...] = ()
    windows: tuple[Window, ...] = ()
    stability: Stability = Stability()
    node_pools: tuple[NodePool, ...] = ()
    admission: Admission = Admission()
    autoscaling: Autoscaling = Autoscaling()
    objectives: Objectives = Objectives()
    ignored_resources: tuple[Name, ...] = ()
    """Resources that decisions leave out of requests: no node advertises them, others place them."""
    namespaces: tuple[Name, ...] = ("*",)
    """Where EDL acts: elsewhere Jobs stay ordinary ones, and pods are never training."""
    protected_namespaces: tuple[Name, ...] = ("kube-*",)
    """Namespaces among these whose pods are never training, whatever labels they carry."""

    network_policies: bool = False
    """Whether the pods of a job with a master get a NetworkPolicy, which keeps strangers out."""

    @field_validator("queues")
    @classmethod
    def _named_once(cls, queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
        names = [queue.name for queue in queues]
        if len(set(names)) < len(names):
            raise ValueError("a queue is listed twice; give it all its namespaces in one entry")
        lenders = [queue for queue in queues if queue.nominal_quota]
        for queue in lenders[1:]:
            different = sorted(queue.nominal_quota.keys() ^ lenders[0].nominal_quota.keys())
            if different:
                raise ValueError(
                    f"the nominalQuota of {lenders[0].name} or of {queue.name} lacks {different[0]}: "
                    "queues that borrow from each other name the same resources, 0 for none"
                )
        return queues

    def acts_in(self, namespace: str) -> bool:
        """Whether EDL acts in `namespace`."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)

    def protects(self, namespace: str) -> bool:
        """Whether pods of `namespace` are protected."""
        if not self.acts_in(namespace):
            return True
        return any(fnmatchcase(namespace, pattern) for pattern in self.protected_namespaces)

    def training_role(self, namespace: str, labels: dict[str, str]) -> Role | None:
        """The role that the first matching training selector gives a pod, or None."""
        for selector in self.training:
            if selector.matches(namespace, labels):
                return selector.role
        return None
