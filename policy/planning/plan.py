"""The types around a plan: `History`, which is an input, and `Plan` with its actions, the output."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from policy.cluster.snapshot import Constraints
from policy.decisions import Figures, sentence
from policy.names import NodeRequest, Tier
from policy.planning.creation_backoff import CreationBackoff
from policy.planning.demand import DemandHistory
from policy.planning.stranding import TaintKey
from policy.priority_classes import class_of
from policy.reasons import Reason
from policy.records import masked
from policy.scheduling import UNMARKED, Scheduling


class MoveKey(NamedTuple):
    """Identifies moves between jobs that succeed or fail together; only compared for equality."""

    shape: tuple[tuple[str, int], ...]
    """(resource, amount) of one trainer of the receiver."""
    constraints: Constraints
    reason: Reason
    step: int
    """Number of trainers that the receiver gets by the move."""
    measure: float
    """Fairness measure of one trainer."""
    scope: tuple[int | str, ...]
    """Indices of the quotas that cover the receiver, and its queue if that has a nominal quota."""
    priority: int
    """Priority of the receiver's queue."""


@dataclass(frozen=True, slots=True)
class FailedMove:
    """A move for which no richer job could give a trainer."""

    at_s: float
    nodes_examined: int
    """Number of nodes examined for the move."""


@dataclass(frozen=True, slots=True)
class Head:
    """The job at the head of the line, for which nodes are held."""

    key: str
    uid: str
    since_s: float


@dataclass(frozen=True, slots=True)
class Line:
    """The jobs that wait for capacity, if the policy demands that jobs start in order."""

    blocked_since: Mapping[str, float] = field(default_factory=dict)
    """Job uid -> time since which no plan has found capacity for its minimum."""
    head: Head | None = None
    vain: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Job key -> (number of failed holds, end of the pause after the last one), for the newest holds."""


@dataclass(frozen=True, slots=True)
class History:
    """Facts from earlier plans that a plan uses. If they are lost in a restart, only moves are delayed."""

    cooling: Mapping[str, float] = field(default_factory=dict)
    """Node -> time until which no trainer is added there, because the node just gave capacity back."""
    reclaimed_for: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """uid of a service pod -> (number of releases for it, time of the last one)."""
    failed_moves: Mapping[MoveKey, FailedMove] = field(default_factory=dict)
    """`Plan.failed_moves` of the previous plan."""
    moved: frozenset[str] = frozenset()
    """`Plan.moved` of the previous plan."""
    offered: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    """uid of the owner of waiting pods -> (time since which free capacity has been reserved for one of
    them while their number did not fall, that number). A pod without an owner has its own uid here."""
    quota_reliefs: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Job uid -> (number of releases for it because of a ResourceQuota, time of the last one)."""
    short_since: Mapping[str, float] = field(default_factory=dict)
    """Job uid -> time since which no plan has found capacity for its minimum."""
    unneeded_since: Mapping[str, float] = field(default_factory=dict)
    """Node -> time since which every plan has found only surplus on it."""
    tainted_since: Mapping[TaintKey, float] | None = None
    """Taint in `Plan.tainted` -> time since which it exists; 0 if it is older than the first plan."""
    vain_requests: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Job uid -> (number of its failed requests for nodes, time of the last failure)."""
    scheduling: Scheduling = UNMARKED
    """How training pods ask for a scheduler now."""
    creation_backoffs: Mapping[str, CreationBackoff] = field(default_factory=dict)
    """Job uid -> its back-off, as the previous plan returned it or as refusals changed it afterwards."""
    demands: Mapping[str, DemandHistory] = field(default_factory=dict)
    """Job uid -> how often it has changed its demand, as the previous plan returned it."""
    line: Line = Line()
    """`Plan.line` of the previous plan."""
    placeable: int = 0
    """Number of trainers that may wait for kube-scheduler, given its pace between the last few plans."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job's target number of trainers, and why it is not higher.

    `live` counts trainers that exist and are not leaving. `target` is `live` plus creations minus
    releases. `share` is the job's weighted share at `target`.
    """

    key: str
    live: int
    target: int
    reason: Reason
    figures: Figures
    share: float
    uncovered: int = 0
    """The part of its minimum that its queue's nominal quota does not cover; see `JobEntry.covered_min`."""

    @property
    def detail(self) -> str:
        """The reason in words."""
        return sentence(self.reason, self.figures)

    @property
    def detail_for_owner(self) -> str:
        """The reason in words, for users who may read only the job's namespace."""
        return sentence(self.reason, masked(self.figures, self.key.partition("/")[0]))


@dataclass(frozen=True, slots=True)
class Create:
    """The creation of a job's trainers in one tier.

    `nodes` has a node for each trainer, with free capacity or with surplus to preempt, or "" if the
    trainer must wait for an autoscaler to add a node.
    """

    job: str
    tier: Tier
    nodes: tuple[str, ...]
    reason: Reason
    master: bool = False
    """Whether the first trainer hosts the job's master."""
    node_request: NodeRequest | None = None
    """Why the trainers are created although no node has capacity; None if they have nodes."""
    avoided_nodes: tuple[str, ...] = ()
    """Nodes on which the trainers must not run, in order of name."""
    low_share: bool = False
    """Whether kube-scheduler, if it preempts by priority alone, should preempt other surplus first."""

    @property
    def count(self) -> int:
        """Number of trainers."""
        return len(self.nodes)

    @property
    def priority_class(self) -> str:
        """Name of the priority class of their pods."""
        return class_of(self.tier, low_share=self.low_share)


@dataclass(frozen=True, slots=True)
class Release:
    """The release of one trainer, which evicts its pod."""

    job: str
    uid: str
    namespace: str
    pod: str
    node: str
    reason: Reason
    figures: Figures

    @property
    def detail(self) -> str:
        """The reason in words."""
        return sentence(self.reason, self.figures)

    @property
    def detail_for_owner(self) -> str:
        """The reason in words, for users who may read only the job's namespace."""
        return sentence(self.reason, masked(self.figures, self.namespace))


@dataclass(frozen=True, slots=True)
class CreateServers:
    """The creation of a job's parameter servers, each on a node with reserved capacity.

    The node is "" if an autoscaler has to add it.
    """

    job: str
    numbers: tuple[int, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseServer:
    """The deletion of a parameter server's pod."""

    job: str
    uid: str
    namespace: str
    pod: str
    reason: Reason
    """JobStopped, SchedulerChanged, NodesNotAdded, or ServerMoves if the pod has ended or its node is
    not ready."""
    node_lost: bool = False
    """Whether its node is not ready, so that no kubelet would confirm the deletion."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All actions to take now; empty if there is nothing to do."""

    jobs: tuple[JobPlan, ...] = ()
    creates: tuple[Create, ...] = ()
    releases: tuple[Release, ...] = ()
    server_creates: tuple[CreateServers, ...] = ()
    server_releases: tuple[ReleaseServer, ...] = ()
    reclaimed_for: frozenset[str] = frozenset()
    """uids of service pods for which this plan releases trainers."""
    offered: Mapping[str, int] = field(default_factory=dict, compare=False)
    """uid of an owner -> number of its waiting pods, if free capacity is reserved for one of them, or was
    reserved in vain. For the next plan's history."""
    short: frozenset[str] = field(default_factory=frozenset, compare=False)
    """uids of jobs for whose minimum no capacity was found. For the next plan's history."""
    quota_reliefs: frozenset[str] = field(default_factory=frozenset, compare=False)
    """uids of jobs for which this plan releases surplus because of a ResourceQuota."""
    unneeded: frozenset[str] = field(default_factory=frozenset, compare=False)
    """Nodes that only surplus uses, if the policy wants surplus to leave them."""
    tainted: frozenset[TaintKey] = field(default_factory=frozenset, compare=False)
    """Taints that cause trainers to be replaced if they last a while. For the next plan's history."""
    gave_up: frozenset[str] = frozenset()
    """uids of jobs whose request for nodes this plan withdraws, because no node came in time."""
    failed_moves: Mapping[MoveKey, FailedMove] = field(default_factory=dict, compare=False)
    """Moves for which no richer job could give a trainer. For the next plan's history."""
    moved: frozenset[str] = field(default_factory=frozenset, compare=False)
    """uids of existing trainers that this plan or an earlier one released for a fairer share. For the
    next plan's history."""
    avoided: Mapping[str, Mapping[str, float]] = field(default_factory=dict, compare=False)
    """Job key -> node where trainers fail -> time until which the job creates no trainer there."""
    creation_backoffs: Mapping[str, CreationBackoff] = field(default_factory=dict, compare=False)
    """Job uid -> its back-off, for the next plan's history."""
    demands: Mapping[str, DemandHistory] = field(default_factory=dict, compare=False)
    """Job uid -> history of its demand, including this plan's gains. For the next plan's history."""
    gains: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Job uid -> number of trainers that it gets at the expense of other jobs; jobs with 0 are missing."""
    line: Line = field(default_factory=Line, compare=False)
    """The jobs that wait for capacity. For the next plan's history."""
    deferred: bool = False
    """Whether some moves were left for the next plan, which should follow soon."""

    @property
    def growing(self) -> frozenset[str]:
        """Keys of the jobs that will get more trainers once the newest ones have a node."""
        return frozenset(job.key for job in self.jobs if job.reason is Reason.GROWING)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.creates or self.releases or self.server_creates or self.server_releases)
