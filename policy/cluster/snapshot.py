"""Frozen records of nodes, pods and jobs: the data that decisions are based on. They are not API objects.

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
"""How long a kubelet may report that it is not ready before its node counts as lost."""

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
    """core/v1 `Toleration`; an empty key or effect matches all.

    `operator` is Exists, Equal, Gt or Lt. Gt tolerates a taint whose value is a larger number, Lt one
    whose value is a smaller number.
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
    """The nodes on which a pod may run: its node selector and required node affinity in one list.

    `terms` are alternatives, and each term is a conjunction. Without terms, any node is allowed.
    """

    terms: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    avoided: tuple[str, ...] = ()
    """Names of a few nodes that are excluded too, in order; each job may have its own."""
    size: int = field(init=False, compare=False, repr=False)
    """Number of values, expressions and tolerations, which bounded caches count."""
    only_node: str = field(init=False, compare=False, repr=False)
    """The one node that all terms name, as for a DaemonSet's pods; "" for none."""

    def __post_init__(self) -> None:
        """Computes the derived fields once, because a plan reads them many times."""
        expressions = [requirement for term in self.terms for requirement in term]
        size = len(self.tolerations) + sum(1 + len(e.values) for e in expressions)
        object.__setattr__(self, "size", size)
        names = {_only_node(term) for term in self.terms}
        object.__setattr__(self, "only_node", names.pop() if len(names) == 1 else "")

    @property
    def shared(self) -> "Constraints":
        """Returns the constraints without `avoided`; many jobs share these."""
        return Constraints(self.terms, self.tolerations) if self.avoided else self


ANYWHERE = Constraints()


@dataclass(frozen=True, slots=True)
class Node:
    """A node, with the fields that scheduling uses; `allocatable` includes "pods"."""

    name: str
    allocatable: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    silent: bool = False
    """Whether its Ready condition is Unknown: its kubelet has not reported for the grace period."""
    unready_s: float = 0.0  # when it stopped being ready; 0 if it is ready or never was

    def is_lost(self, now_s: float, restart_s: float = RESTART_S) -> bool:
        """Returns whether its pods must be replaced on other nodes; Kubernetes itself waits for minutes.

        A kubelet that reports that it is not ready is alive: its container runtime or network restarts.
        That usually takes seconds, and containers continue to run meanwhile.

        Args:
            now_s: The time.
            restart_s: How long such a restart may take.
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
    """The node that it is bound to; "" while it is unscheduled."""
    planned: str = ""
    """The node where the plan reserved capacity for it: only a preference."""
    node_request: NodeRequest | None = None
    """Why it was created although no node had capacity for it; it may have a node by now. None for others."""
    nominated: str = ""
    """`status.nominatedNodeName`: the node where it waits for preempted pods to end."""
    phase: Phase = Phase.PENDING
    ready: bool = False
    gated: bool = False
    deleting: bool = False
    deleted_s: float = 0.0
    """When its deletion was requested and its grace period began; 0 if it is not being deleted."""
    leaves_by_s: float = 0.0
    """`deletionTimestamp`: when its grace period ends; 0 if unknown."""
    disrupted: bool = False  # condition DisruptionTarget: preempted or evicted, not failed
    created_s: float = 0.0
    started_s: float = 0.0
    """`status.startTime`; 0 until the kubelet has accepted it."""
    uncommitted_s: float = 0.0
    """Seconds of training that would be lost with it, as reported by its job's master."""
    ended_s: float = 0.0  # when its containers ended; 0 while they run
    restarts: int = 0
    """Container restarts of a trainer with restartPolicy OnFailure; 0 for other pods."""
    exits: tuple[tuple[str, int], ...] = ()
    """(container, exit code) of a failed trainer; empty for other pods."""
    end_conditions: tuple[tuple[str, str], ...] = ()
    """(type, status) of a failed trainer's conditions; empty for other pods."""
    ran_s: float = 0.0  # how long its containers had run when they ended
    rejected: bool = False  # it failed before any container was started
    lacked_room: bool = False  # its kubelet rejected it for lack of capacity (OutOfcpu)
    owner_uid: str = ""  # uid of the controller that owns it
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
    asked_scheduler: str = ""  # the scheduler that EDL wrote into it; "" if EDL wrote none
    only_resources: bool = True
    """Whether it asks only for resources and nodes; EDL cannot tell where other pods fit."""
    resize: Resources | None = None
    """The amounts that its node lacks for the larger size in `requests`: its resize is Deferred."""
    refused: bool = False
    """Whether kube-scheduler tried it: PodScheduled is False with the reason Unschedulable."""
    insufficient: tuple[str, ...] = ()  # EDL's own resources that this condition's message names
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
        """Whether its program exited with 0 by itself, before any deletion.

        Many programs save their state on SIGTERM and exit with 0 although their work is not done. The
        times of end and deletion are whole seconds: if they are equal, the order is unknown.
        """
        by_itself = not self.deleting or 0.0 < self.ended_s < self.deleted_s
        return self.phase is Phase.SUCCEEDED and by_itself and not self.disrupted

    def leaves_within(self, horizon: Horizon) -> bool:
        """Returns whether it is being deleted and is due within `horizon`."""
        due = not self.leaves_by_s or horizon.since_s <= self.leaves_by_s <= horizon.until_s
        return self.deleting and due

    @property
    def is_training(self) -> bool:
        """Whether it is a training pod; every other pod is a service (or system) pod."""
        return self.role is not None


@dataclass(frozen=True, slots=True)
class TrainerAccounting:
    """The accounting of a job's trainer ids (annotation `edl.training/books`).

    `next_id` grows, except when ids that were never used are given back. `open` has the ids of trainers
    whose end is not counted yet. Each id below `next_id` is in `open` or counted in exactly one of the
    four sums.
    """

    next_id: int = 0
    open: frozenset[int] = frozenset()
    succeeded: int = 0
    failed: int = 0
    disrupted: int = 0
    """Trainers that were preempted, evicted, lost with a node, or ignored by `podFailurePolicy`."""
    released: int = 0  # ended by the plan or by the user (scaled down, suspended)
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
    """PersistentVolumeClaim for their checkpoints; "" if each server has a local directory."""
    limits: Resources = field(default_factory=dict)  # limits of the user's program
    constraints: Constraints | None = None
    """The nodes where they may run; None if these are the same as for trainers."""
    template_json: bytes = b""
    """The user's pod template for them (`policy.admission.role_templates`); "" for EDL's program."""
    ports: tuple[int, ...] = ()
    """Ports of the user's program, whose address has the first one; empty for EDL's program."""


@dataclass(frozen=True, slots=True)
class Job:
    """An elastic job: an annotated batch/v1 Job.

    `template_json` is the user's pod template, which decisions do not read. `requests` and
    `constraints` are what the scheduler will use for a trainer created from the template.
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
    """Pod template of a user's program that replaces EDL's master; "" for EDL's master."""
    token_generation: int = 1  # after a change, later pods get another token
    servers: ServerSpec | None = None  # the parameter servers that it requests
    sizes: tuple[int, ...] = ()  # allowed numbers of trainers, besides the minimum; () for any
    processes: int = 1  # number of processes that each trainer starts
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
    deadline_s: int = 0  # `activeDeadlineSeconds`; 0 for none
    failure_rules: tuple[FailureRule, ...] = ()
    """Rules of `podFailurePolicy`."""
    replaces_ended: bool = False
    """Whether leaving trainers count against max: `podReplacementPolicy: Failed`."""
    status: JobStatus = JobStatus()
    accounting: TrainerAccounting = TrainerAccounting()
    accounting_text: str = ""
    """The annotation's text, or "" if it is absent: the expected old value in an optimistic write."""
    resource_version: str = ""
    template_json: bytes = field(default=b"{}", repr=False, hash=False, compare=False)
    """The pod template as JSON text, which takes a tenth of the memory of the parsed template."""
    error: str = ""  # why it is invalid; an invalid job is reported but not planned
    quarantined: bool = False  # whether `error` is an exception in EDL that the job's data caused
    refusal: str = ""  # the API server's message, if it would refuse a trainer
    unprobed: bool = False  # whether it waits for the API server's dry run of a trainer

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def template(self) -> Mapping[str, object]:
        """The pod template, parsed anew with each access."""
        template: Mapping[str, object] = json.loads(self.template_json)
        return template

    @property
    def server_constraints(self) -> Constraints:
        """The nodes where its parameter servers may run."""
        own = self.servers.constraints if self.servers is not None else None
        return self.constraints if own is None else own

    @property
    def edl_master(self) -> bool:
        """Whether its master is EDL's own, which leases the data and reports when the work is done."""
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
    """The nodes, pods and jobs that a plan is computed from. The order in the tuples has no meaning."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    """Pods that hold or request capacity, and terminal pods of jobs."""
    jobs: tuple[Job, ...] = ()
