"""The decisions that rules yield: frozen values, which only `Book.book` carries out.

A rule in `policy.planning.rules` is a generator that reads the book. Each decision is recorded before the
rule continues, so that the next decision builds on it. Decisions name jobs by their keys.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from policy.cluster.snapshot import Pod, Resources
from policy.decisions import NONE, Figures
from policy.names import Tier
from policy.planning import plan
from policy.planning.creation_backoff import CreationBackoff
from policy.reasons import Reason


class Blocked(NamedTuple):
    """Why a job gets no more trainers now."""

    reason: Reason
    figures: Figures = NONE


@dataclass(frozen=True, slots=True)
class Explain:
    """Records why a job has its target; a later explanation replaces an earlier one."""

    job: str
    blocked: Blocked


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keeps capacity of a node for a pod that waits or will be created."""

    node: str
    requests: Resources
    trainer: str = ""
    """uid of the waiting trainer that the capacity is kept for; "" if it is kept for another pod."""
    is_burst: bool = False
    """Whether a service waits for capacity that only leaving pods can free."""
    in_load: bool = True
    """Whether the reservation counts against the load limits."""


@dataclass(frozen=True, slots=True)
class Unreserve:
    """Takes back capacity that counts as reserved on a node."""

    node: str
    requests: Resources


@dataclass(frozen=True, slots=True)
class Preempt:
    """Expects kube-scheduler to preempt these amounts on a node; they count as leaving load."""

    node: str
    requests: Resources


@dataclass(frozen=True, slots=True)
class CreateTrainers:
    """Creates trainers of a job, one on each node. The capacity is reserved by `Reserve`."""

    job: str
    tier: Tier
    nodes: tuple[str, ...]
    gains: int = 0
    """Number of trainers and first servers that the job gets at the expense of other jobs."""


@dataclass(frozen=True, slots=True)
class AddServers:
    """Creates parameter servers of a job."""

    job: str
    nodes: Mapping[int, str]
    """Index -> node of a server; "" for one that waits for a node."""
    is_start: bool
    """Whether the job starts with these servers; quotas already count servers that are replaced."""


@dataclass(frozen=True, slots=True)
class RequestNodes:
    """Creates trainers of a job that wait for an autoscaler to add nodes, and its first servers."""

    job: str
    create: plan.Create
    servers: int


@dataclass(frozen=True, slots=True)
class AwaitNodes:
    """Keeps pods of a job that wait for an autoscaler to add nodes."""

    job: str


@dataclass(frozen=True, slots=True)
class Expect:
    """Keeps capacity that leaving pods will free, for new trainers of a job; each node gets one trainer."""

    job: str
    nodes: tuple[str, ...]
    gains: int = 0
    """Number of these trainers that the job gets at the expense of other jobs."""


@dataclass(frozen=True, slots=True)
class ReleaseTrainer:
    """Releases a live trainer."""

    job: str
    pod: Pod
    reason: Reason
    figures: Figures
    service: str = ""
    """uid of the service pod that gets the capacity; "" if it is not released for a service."""
    takes_master: bool = False
    """Whether the job loses its master with it, so that the next guaranteed trainer hosts the master."""


@dataclass(frozen=True, slots=True)
class DeleteServer:
    """Deletes a parameter server."""

    job: str
    pod: Pod
    reason: Reason
    is_node_lost: bool = False


@dataclass(frozen=True, slots=True)
class CancelAbsent:
    """Cancels trainers that the built-in controller has not created yet."""

    job: str
    count: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Counts guaranteed trainers and parameter servers against their queue's nominal quota."""

    job: str
    trainers: int
    servers: int


@dataclass(frozen=True, slots=True)
class Uncover:
    """Lowers a job's covered minimum by the trainers that its queue's nominal quota does not cover."""

    job: str
    count: int


@dataclass(frozen=True, slots=True)
class BackOff:
    """Keeps a job from getting more trainers for a while, because its last ones were wasted."""

    job: str
    backoff: CreationBackoff


@dataclass(frozen=True, slots=True)
class Pause:
    """Makes a job that would get more trainers now wait until the newest trainers have a node."""

    job: str
    waiting: int
    """Number of trainers of all jobs that have no node yet."""


@dataclass(frozen=True, slots=True)
class HoldQuota:
    """Keeps a namespace from adding surplus until the minimum of one of its jobs has started."""

    job: str
    is_relief: bool = False
    """Whether this plan releases surplus for that minimum."""


@dataclass(frozen=True, slots=True)
class WaiveAvoidance:
    """Lets guaranteed trainers of a job run on nodes that it avoids: no other node has capacity."""

    job: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Reports pods that get no capacity: they fit on no node, even without surplus."""

    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Remember:
    """Records facts for the next plan; the fields have the names of the fields in `Plan`."""

    offered: Mapping[str, int] = field(default_factory=dict)
    short: frozenset[str] = frozenset()
    gave_up: frozenset[str] = frozenset()
    line: plan.Line | None = None
    failed_moves: Mapping[plan.MoveKey, plan.FailedMove] = field(default_factory=dict)
    is_deferred: bool = False


OnNode = Reserve | Unreserve | Preempt
"""Decisions that change a node's free capacity."""
Creation = CreateTrainers | AddServers | RequestNodes | Expect
"""Decisions that give a job pods."""
Ending = ReleaseTrainer | DeleteServer | CancelAbsent
"""Decisions that take pods from a job."""
NoteOfJob = AwaitNodes | BackOff | Claim | HoldQuota | Pause | Uncover | WaiveAvoidance
"""Decisions that other rules consider when they look at a job."""
Note = Explain | Leave | Remember | NoteOfJob
"""Decisions that only other rules or the next plan consider."""
Decision = OnNode | Creation | Ending | Note

_T = TypeVar("_T")
Decisions = Generator[Decision, None, _T]
"""A generator of the decisions of a rule, or of a part of a rule, with its return value."""
