"""The decisions of rules: frozen values, which `Book.book` alone carries out.

A rule in `policy.planning.rules` is a generator that reads the book. Each decision is booked before the rule
goes on, so that the next one builds on it. Jobs are named by their keys.
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
    """uid of the waiting trainer that the capacity is kept for, if it is one."""
    is_burst: bool = False
    """Whether a service waits for capacity that only leaving pods can free."""
    in_load: bool = True
    """Whether it counts against the load limits."""


@dataclass(frozen=True, slots=True)
class Unreserve:
    """Takes back capacity that counts as reserved on a node."""

    node: str
    requests: Resources


@dataclass(frozen=True, slots=True)
class Preempt:
    """Expects kube-scheduler to preempt this much on a node, so that it counts as leaving load."""

    node: str
    requests: Resources


@dataclass(frozen=True, slots=True)
class CreateTrainers:
    """Creates trainers of a job, one on each node. The capacity is reserved by `Reserve`."""

    job: str
    tier: Tier
    nodes: tuple[str, ...]
    gains: int = 0
    """How many of its trainers and servers are at the expense of other jobs."""


@dataclass(frozen=True, slots=True)
class AddServers:
    """Creates parameter servers of a job."""

    job: str
    nodes: Mapping[int, str]
    """Index -> node of a server; "" for one that waits for a node."""
    is_start: bool
    """Whether the job starts with them: only then they count against quotas, which have the others."""


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
    """Keeps capacity that leaving pods will free for new trainers of a job, one on each node."""

    job: str
    nodes: tuple[str, ...]
    gains: int = 0
    """How many of the trainers are at the expense of other jobs."""


@dataclass(frozen=True, slots=True)
class ReleaseTrainer:
    """Releases a live trainer."""

    job: str
    pod: Pod
    reason: Reason
    figures: Figures
    service: str = ""
    """uid of the service pod that gets the capacity, if it is for one."""
    takes_master: bool = False
    """Whether the job lacks its master from now on, so that the next guaranteed trainer hosts it."""


@dataclass(frozen=True, slots=True)
class DeleteServer:
    """Deletes a parameter server."""

    job: str
    pod: Pod
    reason: Reason
    is_node_lost: bool = False


@dataclass(frozen=True, slots=True)
class CancelAbsent:
    """Takes back trainers that the built-in controller has not created yet."""

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
    """Lowers a job's covered minimum by what its queue's nominal quota does not cover."""

    job: str
    count: int


@dataclass(frozen=True, slots=True)
class BackOff:
    """Keeps a job from getting more trainers for a while, as its last ones came to nothing."""

    job: str
    backoff: CreationBackoff


@dataclass(frozen=True, slots=True)
class Pause:
    """Makes a job that would get more trainers now wait until those under way have a node."""

    job: str
    waiting: int
    """Number of trainers under way, of all jobs."""


@dataclass(frozen=True, slots=True)
class HoldQuota:
    """Keeps a namespace from adding surplus until the minimum of one of its jobs has started."""

    job: str
    is_relief: bool = False
    """Whether this plan releases surplus for it."""


@dataclass(frozen=True, slots=True)
class WaiveAvoidance:
    """Lets guaranteed trainers of a job run on nodes that it avoids: no other node has capacity."""

    job: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Leaves pods without capacity: they fit on no node, even without surplus."""

    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Remember:
    """Notes facts for the next plan; the fields are those of `Plan`."""

    offered: Mapping[str, int] = field(default_factory=dict)
    short: frozenset[str] = frozenset()
    gave_up: frozenset[str] = frozenset()
    line: plan.Line | None = None
    failed_moves: Mapping[plan.MoveKey, plan.FailedMove] = field(default_factory=dict)
    is_deferred: bool = False


OnNode = Reserve | Unreserve | Preempt
"""Decisions that change what is free on a node."""
Creation = CreateTrainers | AddServers | RequestNodes | Expect
"""Decisions that give a job pods."""
Ending = ReleaseTrainer | DeleteServer | CancelAbsent
"""Decisions that take pods from a job."""
NoteOfJob = AwaitNodes | BackOff | Claim | HoldQuota | Pause | Uncover | WaiveAvoidance
"""What other rules go by when they look at a job."""
Note = Explain | Leave | Remember | NoteOfJob
"""What other rules, or the next plan, go by."""
Decision = OnNode | Creation | Ending | Note

_T = TypeVar("_T")
Decisions = Generator[Decision, None, _T]
"""The decisions of a rule or of a part of one, and what that returns in the end."""
