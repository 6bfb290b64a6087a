"""The core's own view of a cluster: small frozen records, not API objects.

`kube.decode` makes them from API JSON; everything in `policy` decides on them. Amounts are
integers in the units of `policy.quantity`. Times are seconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from policy.names import Role, Tier

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
    """core/v1 `Toleration`; `operator` is Exists or Equal, an empty key or effect means all."""

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


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where a pod may run: node selector and required node affinity folded into one.

    `terms` are alternatives, each a conjunction; no terms at all means any node.
    """

    terms: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


ANYWHERE = Constraints()


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the scheduler sees it. `allocatable` includes "pods"."""

    name: str
    allocatable: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, trimmed. `requests` is what the scheduler counts, "pods": 1 included."""

    namespace: str
    name: str
    uid: str
    requests: Resources
    priority: int = 0
    preempts: bool = True
    """False for `preemptionPolicy: Never`."""
    node: str = ""
    """Where it is bound; "" while unscheduled."""
    planned: str = ""
    """Where the plan that made it had room for it: a wish, not a claim."""
    nominated: str = ""
    """`status.nominatedNodeName`: where it waits for victims to leave."""
    phase: Phase = Phase.PENDING
    ready: bool = False
    gated: bool = False
    deleting: bool = False
    disrupted: bool = False
    """Condition DisruptionTarget is true: preempted, evicted, drained. Never a failure."""
    created_s: float = 0.0
    started_s: float = 0.0
    """`status.startTime`, or 0 before the node took it."""
    uncommitted_s: float = 0.0
    """Seconds of training that would be lost with it, as its job's master says."""
    ended_s: float = 0.0
    """When its containers ended, or 0 while they run."""
    owner_uid: str = ""
    """uid of the controller that owns it."""
    job: str = ""
    """Label `edl.training/job`."""
    role: Role | None = None
    """Label `edl.training/role`; None for services."""
    tier: Tier | None = None
    trainer_id: int = -1
    master: bool = False
    """Label `edl.training/master`: it carries its job's master."""
    server: int = -1
    """Label `edl.training/parameter-server`: which of its job's servers it is; -1 for none."""
    address: str = ""
    """`status.podIP` of a pod that carries a master; the others' are not kept."""
    constraints: Constraints = ANYWHERE
    scheduler: str = "default-scheduler"

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def terminal(self) -> bool:
        """Its containers have ended; it holds no capacity any more."""
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED)

    @property
    def is_training(self) -> bool:
        """Whether it is one of ours to move; every other pod is a service (or system) pod."""
        return self.role is not None


@dataclass(frozen=True, slots=True)
class Books:
    """What became of every trainer id of a job (annotation `edl.training/books`).

    `next_id` grows only. `open` are the ids whose pods have not been accounted for yet. Each
    id below `next_id` is in `open` or counted in exactly one of the four sums.
    """

    next_id: int = 0
    open: frozenset[int] = frozenset()
    succeeded: int = 0
    failed: int = 0
    disrupted: int = 0
    """Preempted, evicted, drained, or gone with a node."""
    released: int = 0
    """Given up by the plan or by the user (scaled down, suspended)."""
    failures_in_row: int = 0
    last_failure_s: float = 0.0


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
class Servers:
    """The parameter servers that a job asked for."""

    count: int
    requests: Resources
    """Of one of them, "pods" included."""
    claim: str = ""
    """PersistentVolumeClaim for their checkpoints; "" where each keeps its own beside it."""


@dataclass(frozen=True, slots=True)
class Job:
    """An elastic job: an annotated batch/v1 Job today, a TrainingJob later.

    `template` is the pod template as the user wrote it and opaque to the core; `requests`
    and `constraints` are what the scheduler will count for one trainer made from it.
    """

    namespace: str
    name: str
    uid: str
    min_trainers: int
    max_trainers: int
    requests: Resources
    constraints: Constraints = ANYWHERE
    limits: Resources = field(default_factory=dict)
    """What one trainer may use at most; a resource without a limit is missing."""
    weight: int = 1
    queue: str = ""
    master: bool = False
    """It asks for a master: annotation `edl.training/master`."""
    master_settings: Mapping[str, str] = field(default_factory=dict)
    """Annotations that say how its master is to be started."""
    servers: Servers | None = None
    """The parameter servers it asks for."""
    account: str = "default"
    """Service account of its pods."""
    created_s: float = 0.0
    managed: bool = True
    """`spec.managedBy` names us; False: the built-in controller has its pods."""
    parallelism: int = 0
    suspended: bool = False
    deleting: bool = False
    backoff_limit: int = 6
    deadline_s: int = 0
    """`activeDeadlineSeconds`, 0 for none."""
    status: JobStatus = JobStatus()
    books: Books = Books()
    books_text: str = ""
    """The annotation as it stands, "" if absent: what an optimistic write must find."""
    resource_version: str = ""
    template: Mapping[str, object] = field(default_factory=dict, hash=False, compare=False)
    error: str = ""
    """Why this job cannot be elastic as it is; such a job is reported, never planned."""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def over(self) -> bool:
        """Its end is decided: it has finished, or its trainers are being stopped for it."""
        ends = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
        return any(c.type in ends and c.status == "True" for c in self.status.conditions)

    @property
    def stopped(self) -> bool:
        """Whether it should have no pods at all."""
        return self.suspended or self.deleting or self.over

    @property
    def finished(self) -> bool:
        """It carries a Complete or Failed condition: nothing of it may change any more."""
        return any(
            c.type in ("Complete", "Failed") and c.status == "True" for c in self.status.conditions
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a plan may look at. The order of the tuples carries no meaning."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    """Pods that hold or want capacity: terminal ones of jobs included, others left out."""
    jobs: tuple[Job, ...] = ()
