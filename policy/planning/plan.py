"""The types of a plan: its history as input, and its decisions as output."""

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
    """Number of trainers that the move gives."""
    measure: float
    """Fairness measure of one trainer."""
    scope: tuple[int | str, ...]
    """The quotas that cover the receiver, by index, and the queue that owns one."""
    priority: int
    """Of the receiver's queue."""


@dataclass(frozen=True, slots=True)
class FailedMove:
    """A move for which no richer job could give a trainer."""

    at_s: float
    nodes_examined: int
    """Number of nodes examined for the move."""


@dataclass(frozen=True, slots=True)
class Head:
    """The job that waits at the head of the line, while nodes are held for it."""

    key: str
    uid: str
    since_s: float


@dataclass(frozen=True, slots=True)
class Line:
    """The jobs that wait for capacity, where the policy wants them to start in order."""

    blocked_since: Mapping[str, float] = field(default_factory=dict)
    """Job uid -> since when every plan has found no capacity for its minimum."""
    head: Head | None = None
    vain: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Job key -> (number of failed holds, end of the pause after the last), of the newest holds."""


@dataclass(frozen=True, slots=True)
class History:
    """Facts of earlier plans that a plan uses. Losing them in a restart only delays moves."""

    cooling: Mapping[str, float] = field(default_factory=dict)
    """Node -> time until which no trainer is added there, because it just gave capacity back."""
    reclaimed_for: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """uid of a service pod -> (number, time of the last) of releases for it."""
    failed_moves: Mapping[MoveKey, FailedMove] = field(default_factory=dict)
    """As the previous plan returned them."""
    moved: frozenset[str] = frozenset()
    """As the previous plan returned them."""
    offered: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    """uid of the owner of waiting pods -> (since when free capacity has been reserved for one of them
    without fewer of them waiting, number that wait). A pod without an owner has its own uid."""
    quota_reliefs: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Job uid -> (number, time of the last) of releases for it, because of a ResourceQuota."""
    short_since: Mapping[str, float] = field(default_factory=dict)
    """Job uid -> since when no capacity was found for its minimum, by every plan since."""
    unneeded_since: Mapping[str, float] = field(default_factory=dict)
    """Node -> since when surplus alone has used it, in every plan since."""
    tainted_since: Mapping[TaintKey, float] | None = None
    """Since when the taints of `Plan.tainted` are there, 0 where that was before the first plan."""
    vain_requests: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Job uid -> (number, time of the last) of requests for nodes that did not come."""
    scheduling: Scheduling = UNMARKED
    """How training pods ask for a scheduler now."""
    creation_backoffs: Mapping[str, CreationBackoff] = field(default_factory=dict)
    """Job uid -> its back-off, as the previous plan returned it or after refusals since."""
    demands: Mapping[str, DemandHistory] = field(default_factory=dict)
    """Job uid -> how often it has changed what it asks for, as the previous plan returned it."""
    line: Line = Line()
    """As the previous plan returned it."""
    placeable: int = 0
    """Trainers that may wait for kube-scheduler, by its pace between the last few plans."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job's target number of trainers, and why it is not higher.

    `live` counts trainers that exist and are not leaving; `target` is `live` plus creations less
    releases. `share` is the job's weighted share at `target`.
    """

    key: str
    live: int
    target: int
    reason: Reason
    figures: Figures
    share: float
    uncovered: int = 0
    """How much of its minimum its queue's nominal quota does not cover; see `JobEntry.covered_min`."""

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
    """The creation of trainers of a job in one tier.

    `nodes` has one node for each trainer: one with free capacity, or with surplus to preempt; ""
    where it has to wait for an autoscaler to add one.
    """

    job: str
    tier: Tier
    nodes: tuple[str, ...]
    reason: Reason
    master: bool = False
    """Whether the first of them hosts the job's master."""
    node_request: NodeRequest | None = None
    """Why they are created though no node has room for them."""
    avoided_nodes: tuple[str, ...] = ()
    """Nodes on which they must not run, in order of name."""
    low_share: bool = False
    """Whether kube-scheduler, where it preempts by priorities alone, is to spare them longer than other surplus."""

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
    """The release of one trainer: its eviction, for the given reason."""

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

    A node "" is one that an autoscaler has to add.
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
    """JobStopped; SchedulerChanged; NodesNotAdded; ServerMoves where the pod has ended or its node is
    not ready."""
    node_lost: bool = False
    """Whether its node is not ready, so that no kubelet would confirm the deletion."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All actions to take now; empty where nothing is to be done."""

    jobs: tuple[JobPlan, ...] = ()
    creates: tuple[Create, ...] = ()
    releases: tuple[Release, ...] = ()
    server_creates: tuple[CreateServers, ...] = ()
    server_releases: tuple[ReleaseServer, ...] = ()
    reclaimed_for: frozenset[str] = frozenset()
    """uids of service pods for which this plan releases trainers."""
    offered: Mapping[str, int] = field(default_factory=dict, compare=False)
    """uid of an owner -> its waiting pods, where free capacity is reserved for one of them, or was
    until they did not take it. For the next plan's history."""
    short: frozenset[str] = field(default_factory=frozenset, compare=False)
    """uids of jobs for whose minimum no capacity was found. For the next plan's history."""
    quota_reliefs: frozenset[str] = field(default_factory=frozenset, compare=False)
    """uids of jobs for which this plan releases surplus, because of a ResourceQuota."""
    unneeded: frozenset[str] = field(default_factory=frozenset, compare=False)
    """Nodes that surplus alone uses, where the policy wants it to leave them."""
    tainted: frozenset[TaintKey] = field(default_factory=frozenset, compare=False)
    """Taints that make replacements of trainers after a while. For the next plan's history."""
    gave_up: frozenset[str] = frozenset()
    """uids of jobs whose request for nodes this plan takes back, as none came in time."""
    failed_moves: Mapping[MoveKey, FailedMove] = field(default_factory=dict, compare=False)
    """For the next plan's history."""
    moved: frozenset[str] = field(default_factory=frozenset, compare=False)
    """uids of trainers that were released for a fairer share, by this plan or earlier ones, as long as
    they exist. For the next plan's history."""
    avoided: Mapping[str, Mapping[str, float]] = field(default_factory=dict, compare=False)
    """Job key -> node -> until when the job creates no trainer there, because trainers fail there."""
    creation_backoffs: Mapping[str, CreationBackoff] = field(default_factory=dict, compare=False)
    """Job uid -> its back-off, for the next plan's history."""
    demands: Mapping[str, DemandHistory] = field(default_factory=dict, compare=False)
    """For the next plan's history; what this plan takes of other jobs is counted in it."""
    gains: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Job uid -> trainers that this plan gives it at the expense of other jobs, where there are any."""
    line: Line = field(default_factory=Line, compare=False)
    """For the next plan's history."""
    deferred: bool = False
    """Whether moves were left untried for the next plan, which should follow soon."""

    @property
    def growing(self) -> frozenset[str]:
        """Keys of the jobs that will get more trainers once those before have a node."""
        return frozenset(job.key for job in self.jobs if job.reason is Reason.GROWING)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.creates or self.releases or self.server_creates or self.server_releases)
