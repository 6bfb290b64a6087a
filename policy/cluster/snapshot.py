"""Frozen records of nodes, pods and jobs: the data that decisions are based on, not API objects.

`kube.decode` creates them from API JSON. Amounts are integers in the units of `policy.quantity`.
Times are seconds since the epoch.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from policy.cluster.failure_rules import FailureRule
from policy.cluster.horizon import Horizon
from policy.names import DEFAULT_SCHEDULER, NODE_NAME, NodeRequest, Role, Tier

RESTART_S = 60.0
"""How long a kubelet may report to be not ready before its node counts as lost."""

Resources = Mapping[str, int]
"""Resource name -> amount; shared between records and never changed. A missing name is 0."""


class Phase(StrEnum):
    """core/v1 `PodStatus.phase`."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Taint:
    """core/v1 `Taint`."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """core/v1 `Toleration`; an empty key or effect means all.

    `operator` is Exists or Equal; Gt or Lt: the taint's value is a greater or a smaller number.
    """

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Requirement:
    """core/v1 `NodeSelectorRequirement`; `key` is `metadata.name` for matchFields."""

    key: str
    operator: str
    values: tuple[str, ...]


def _only_node(term: tuple[Requirement, ...]) -> str:
    for requirement in term:
        by_name = requirement.key == NODE_NAME and requirement.operator == "In"
        if by_name and len(requirement.values) == 1:
            return requirement.values[0]
    return ""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Constraints:
    """The nodes on which a pod may run: node selector and required node affinity folded into one.

    `terms` are alternatives, each a conjunction; no terms at all means any node.
    """

    terms: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    avoided: tuple[str, ...] = ()
    """Names of a few nodes that are left out besides, in order; each job may have its own."""
    size: int = field(init=False, compare=False, repr=False)
    """Number of values, expressions and tolerations, for caches that are bounded."""
    only_node: str = field(init=False, compare=False, repr=False)
    """The one node that all terms name, as those of a DaemonSet's pods do; "" for none."""

    def __post_init__(self) -> None:
        """Sets what follows from the fields, which a plan reads many times."""
        expressions = [requirement for term in self.terms for requirement in term]
        size = len(self.tolerations) + sum(1 + len(e.values) for e in expressions)
        object.__setattr__(self, "size", size)
        names = {_only_node(term) for term in self.terms}
        object.__setattr__(self, "only_node", names.pop() if len(names) == 1 else "")

    @property
    def shared(self) -> "Constraints":
        """The same without `avoided`, as many jobs have them."""
        return Constraints(self.terms, self.tolerations) if self.avoided else self


ANYWHERE = Constraints()


@dataclass(frozen=True, slots=True)
class Node:
    """A node, with the fields that scheduling uses. `allocatable` includes "pods"."""

    name: str
    allocatable: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    silent: bool = False
    """Whether its Ready condition is Unknown: no word of its kubelet for the monitor's grace period."""
    unready_s: float = 0.0  # since when it is not ready; 0 where it is, or never was

    def is_lost(self, now_s: float, restart_s: float = RESTART_S) -> bool:
        """Whether what runs on it must be replaced elsewhere; Kubernetes itself waits for minutes.

        A kubelet that reports to be not ready lives: its runtime or network restarts, mostly for
        seconds, and containers continue meanwhile.

        Args:
            now_s: The time.
            restart_s: How long that may take.
        """
        unready = self.unready_s > 0 and now_s - self.unready_s >= restart_s
        return not self.ready and (self.silent or unready)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, with the fields that decisions use.

    `requests` has the amounts that the scheduler counts, including "pods": 1.
    """

    namespace: str
    name: str
    uid: str
    requests: Resources
    priority: int = 0
    preempts: bool = True  # False for `preemptionPolicy: Never`
    node: str = ""
    """The node it is bound to; "" while unscheduled."""
    planned: str = ""
    """Node on which the plan that created it reserved capacity: a preference only."""
    node_request: NodeRequest | None = None
    """Whether it was created though no node had room, and for what; it may have a node by now."""
    nominated: str = ""
    """`status.nominatedNodeName`: the node where it waits for victims to end."""
    phase: Phase = Phase.PENDING
    ready: bool = False
    gated: bool = False
    deleting: bool = False
    deleted_s: float = 0.0
    """When its deletion was requested, or 0; its grace period begins then."""
    leaves_by_s: float = 0.0
    """`deletionTimestamp`: when its grace period ends; 0 where that is not known."""
    disrupted: bool = False  # condition DisruptionTarget: preempted, evicted, drained; no failure
    created_s: float = 0.0
    started_s: float = 0.0
    """`status.startTime`, or 0 before the kubelet accepted it."""
    uncommitted_s: float = 0.0
    """Seconds of training that would be lost with it, as its job's master reports."""
    ended_s: float = 0.0  # when its containers ended, or 0 while they run
    restarts: int = 0
    """Restarts of the containers of a trainer with restartPolicy OnFailure; 0 for other pods."""
    exits: tuple[tuple[str, int], ...] = ()
    """(container, exit code) of a trainer that has failed; empty for other pods."""
    end_conditions: tuple[tuple[str, str], ...] = ()
    """(type, status) of the conditions of a trainer that has failed; empty for other pods."""
    ran_s: float = 0.0  # how long its containers had run when they ended
    rejected: bool = False  # it failed before any of them was started
    lacked_room: bool = False  # rejected by a kubelet that had no room for it (OutOfcpu)
    owner_uid: str = ""  # of the controller that owns it
    job: str = ""  # label `edl.training/job`
    role: Role | None = None  # label `edl.training/role`; None for services
    tier: Tier | None = None
    trainer_id: int = -1
    master: bool = False  # label `edl.training/master`: it hosts its job's master
    server: int = -1
    """Label `edl.training/parameter-server`: its index among the job's servers; -1 for none."""
    address: str = ""  # `status.podIP` of a master's host; "" for other pods
    constraints: Constraints = ANYWHERE
    limits: Resources = field(default_factory=dict)  # as `Job.limits`
    scheduler: str = DEFAULT_SCHEDULER
    asked_scheduler: str = ""  # the one that EDL wrote into it; "" for a pod of another
    only_resources: bool = True
    """Whether it asks for resources and nodes only; of other pods EDL cannot tell where they fit."""
    resize: Resources | None = None
    """What its node lacks for the larger size that `requests` has: its resize is Deferred."""
    refused: bool = False
    """Condition PodScheduled is false with reason Unschedulable: kube-scheduler has tried it."""
    insufficient: tuple[str, ...] = ()  # of EDL's own resources, in that condition's message
    marked: bool = False  # whether it requests `edl.training/trainer`

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def terminal(self) -> bool:
        """Whether its containers have ended, so that it holds no capacity."""
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED)

    @property
    def succeeded(self) -> bool:
        """Whether its program ended with 0 by itself.

        Many programs save their state on SIGTERM and exit with 0; their work is not done. Both times
        are whole seconds: if a pod ends in the second of its deletion, the order is unknown.
        """
        by_itself = not self.deleting or 0.0 < self.ended_s < self.deleted_s
        return self.phase is Phase.SUCCEEDED and by_itself and not self.disrupted

    def leaves_within(self, horizon: Horizon) -> bool:
        """Whether it is being deleted, and its capacity counts as coming."""
        due = not self.leaves_by_s or horizon.since_s <= self.leaves_by_s <= horizon.until_s
        return self.deleting and due

    @property
    def is_training(self) -> bool:
        """Whether it belongs to training; every other pod is a service (or system) pod."""
        return self.role is not None


@dataclass(frozen=True, slots=True)
class TrainerAccounting:
    """The accounting of a job's trainer ids (annotation `edl.training/books`).

    `next_id` grows; only ids that were never used are given back. `open` has the ids whose end is not
    counted yet. Each id below `next_id` is in `open` or counted in exactly one of the four sums.
    """

    next_id: int = 0
    open: frozenset[int] = frozenset()
    succeeded: int = 0
    failed: int = 0
    disrupted: int = 0
    """Preempted, evicted, drained, gone with a node, or ignored by `podFailurePolicy`."""
    released: int = 0  # by the plan or by the user (scaled down, suspended)
    excused: int = 0  # failures that do not count towards `backoffLimit`
    failures_in_row: int = 0
    last_failure_s: float = 0.0
    fatal: str = ""
    """The failure by which a FailJob rule of `podFailurePolicy` ends the job, in one line."""


@dataclass(frozen=True, slots=True)
class JobCondition:
    """batch/v1 `JobCondition`; `status` is "True" or "False"."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The part of batch/v1 `JobStatus` that the reconciler writes."""

    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    start_s: float = 0.0
    completion_s: float = 0.0
    conditions: tuple[JobCondition, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """The parameter servers that a job requests."""

    count: int
    requests: Resources  # of one server, including "pods"
    claim: str = ""
    """PersistentVolumeClaim for their checkpoints; "" for a local directory of each server."""
    limits: Resources = field(default_factory=dict)  # of a program of the user's
    constraints: Constraints | None = None
    """Where they may run; None for where trainers may."""
    template_json: bytes = b""
    """The user's pod template for them, "" for EDL's program (`policy.admission.role_templates`)."""
    ports: tuple[int, ...] = ()
    """Those of a program of the user's, the first one is its address; empty for EDL's."""


@dataclass(frozen=True, slots=True)
class Job:
    """An elastic job: an annotated batch/v1 Job.

    `template_json` is the user's pod template, which decisions do not read; `requests` and
    `constraints` are those that the scheduler will count for one trainer created from it.
    """

    namespace: str
    name: str
    uid: str
    min_trainers: int
    max_trainers: int
    requests: Resources
    constraints: Constraints = ANYWHERE
    limits: Resources = field(default_factory=dict)
    """Limits of one trainer; a resource without a limit is missing."""
    weight: int = 1
    queue: str = ""
    master: bool = False
    """Whether it requests a master: annotation `edl.training/master`."""
    master_settings: Mapping[str, str] = field(default_factory=dict)
    """Annotations with settings of its master."""
    master_requests: Resources = field(default_factory=dict)  # empty for the default
    master_template_json: bytes = b""
    """Pod template of a program of the user's in place of EDL's master; "" for EDL's."""
    token_generation: int = 1  # another one gives later pods another token
    servers: ServerSpec | None = None  # the parameter servers that it requests
    sizes: tuple[int, ...] = ()  # its allowed numbers of trainers, besides its minimum; () for any
    processes: int = 1  # that each trainer starts
    environment: tuple[str, ...] = ()  # frameworks whose variables its pods get
    account: str = "default"  # service account of its pods
    scheduler: str = DEFAULT_SCHEDULER
    created_s: float = 0.0
    managed: bool = True
    """Whether `spec.managedBy` names EDL; otherwise the built-in controller manages its pods."""
    parallelism: int = 0
    suspended: bool = False
    deleting: bool = False
    backoff_limit: int = 6
    deadline_s: int = 0  # `activeDeadlineSeconds`, 0 for none
    failure_rules: tuple[FailureRule, ...] = ()
    """Rules of `podFailurePolicy`."""
    replaces_ended: bool = False
    """Whether trainers that are leaving count against max: `podReplacementPolicy: Failed`."""
    status: JobStatus = JobStatus()
    accounting: TrainerAccounting = TrainerAccounting()
    accounting_text: str = ""
    """The annotation's text, "" if absent: the expected old value of an optimistic write."""
    resource_version: str = ""
    template_json: bytes = field(default=b"{}", repr=False, hash=False, compare=False)
    """Kept as text, which takes a tenth of the memory."""
    error: str = ""  # why it is invalid; such a job is reported but not planned
    quarantined: bool = False  # `error` is an error of EDL that the job's data caused
    refusal: str = ""  # the API server's message, if it would refuse a trainer
    unprobed: bool = False  # it waits until it is known what the API server makes of a trainer

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def template(self) -> Mapping[str, object]:
        """The pod template; parsed with each call."""
        template: Mapping[str, object] = json.loads(self.template_json)
        return template

    @property
    def server_constraints(self) -> Constraints:
        """Where its parameter servers may run."""
        own = self.servers.constraints if self.servers is not None else None
        return self.constraints if own is None else own

    @property
    def edl_master(self) -> bool:
        """Whether EDL's own master leases its data, and reports when the work is done."""
        return self.master and not self.master_template_json

    @property
    def over(self) -> bool:
        """Whether its end is decided: it has finished, or its trainers are being stopped."""
        return self._has_condition("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")

    @property
    def stopped(self) -> bool:
        """Whether it should have no pods at all."""
        return self.suspended or self.deleting or self.over

    @property
    def finished(self) -> bool:
        """Whether it has a Complete or Failed condition, so that its status is final."""
        return self._has_condition("Complete", "Failed")

    def _has_condition(self, *types: str) -> bool:
        return any(c.type in types and c.status == "True" for c in self.status.conditions)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The complete input of a plan. The order of the tuples has no meaning."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    """Pods that hold or request capacity, and terminal pods of jobs."""
    jobs: tuple[Job, ...] = ()
