"""Names that EDL writes on Kubernetes objects, shared by all components.

They are an interface: pods and Jobs in a cluster keep them across restarts and upgrades.
"""

import re
from enum import StrEnum
from hashlib import sha256

GROUP = "edl.training"
MANAGER = "edl.training/reconciler"
"""Value of `spec.managedBy` on Jobs whose pods the reconciler owns."""

TRAINER_RESOURCE = "edl.training/trainer"
"""Extended resource for which kube-scheduler calls the extender (`managedResources`): the marker."""
DEFAULT_SCHEDULER = "default-scheduler"
"""`schedulerName` of pods that name none: kube-scheduler."""
NODE_NAME = "metadata.name"
"""The one field of a node that node affinity can name (core/v1 `matchFields`)."""
CHECK_RESOURCE = "edl.training/scheduler-check"
"""Extended resource of no node, which only the test pod of the reconciler requests."""

ANNOTATION_MIN = "edl.training/min-trainers"
ANNOTATION_MAX = "edl.training/max-trainers"
ANNOTATION_QUEUE = "edl.training/queue"
ANNOTATION_WEIGHT = "edl.training/weight"
ANNOTATION_MASTER = "edl.training/master"
"""On a Job: "true" requests a master, which distributes the training data."""
ANNOTATION_MASTER_STEPS = "edl.training/master-max-steps"
"""On such a Job, and on its master's host: the number of steps after which training ends."""
ANNOTATION_MASTER_HEARTBEAT = "edl.training/master-heartbeat-seconds"
"""On the same objects: interval of the trainers' heartbeats."""
ANNOTATION_MASTER_STUCK = "edl.training/master-stuck-seconds"
"""On the same objects: for how long the others wait for a member of a synchronous group."""
ANNOTATION_TOKEN_GENERATION = "edl.training/token-generation"  # noqa: S105 - a name
"""On a Job with a master: another number gives later pods another token."""
ANNOTATION_SERVERS = "edl.training/parameter-servers"
"""On a Job with a master: the number of its parameter servers."""
ANNOTATION_SERVER_CPU = "edl.training/parameter-server-cpu"
ANNOTATION_SERVER_MEMORY = "edl.training/parameter-server-memory"
ANNOTATION_CLAIM = "edl.training/checkpoint-claim"
"""On a Job with parameter servers: the PersistentVolumeClaim for their checkpoints."""
ANNOTATION_SERVER_ADDRESSES = "edl.training/parameter-server-addresses"
"""On a trainer of such a job: addresses of the servers in order of index, separated by commas."""
ANNOTATION_MASTER_ADDRESS = "edl.training/master-address"
"""On a pod of such a job: address of the master, the same whichever pod hosts it."""
ANNOTATION_TOKEN_SECRET = "edl.training/token-secret"  # noqa: S105 - a name
"""On a pod of such a job: the Secret with the job's token."""
ANNOTATION_SNAPSHOT = "edl.training/snapshot-configmap"
"""On the pod that hosts the master: the ConfigMap for its snapshots."""
ANNOTATION_KEPT_ENVIRONMENT = "edl.training/kept-environment"
"""On a pod: variables (container/NAME) that the user set to other values than EDL would."""
ANNOTATION_PLANNED_NODE = "edl.training/planned-node"
"""On a trainer: the node on which the plan reserved capacity; the extender prefers that node."""
ANNOTATION_SCHEDULER = "edl.training/scheduler"
"""On a pod: the scheduler that EDL has written into it; another webhook may write another one."""
ANNOTATION_NODE_REQUEST = "edl.training/node-request"
"""On a pod that waits for a node which does not exist yet: a `NodeRequest`."""
ANNOTATION_UNCOMMITTED = "edl.training/uncommitted-seconds"
"""On a trainer: seconds of training that would be lost with it, as its job's master reports."""
ANNOTATION_BOOKS = "edl.training/books"
"""JSON on a Job: its open trainer ids, and how the others ended (`policy.trainer_accounting`)."""

ANNOTATION_TEMPLATE_HASH = "edl.training/template-hash"
"""On the Job of a TrainingJob: identifies the pod template from which it was created."""

DRAIN_BLOCKS = (
    "karpenter.sh/do-not-disrupt",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
)
"""Annotations of a pod by which autoscalers leave its node; surplus trainers never have them."""

JOB_ANNOTATIONS = (
    ANNOTATION_MIN,
    ANNOTATION_MAX,
    ANNOTATION_QUEUE,
    ANNOTATION_WEIGHT,
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_STUCK,
    ANNOTATION_TOKEN_GENERATION,
    ANNOTATION_SERVERS,
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVER_MEMORY,
    ANNOTATION_CLAIM,
    ANNOTATION_TEMPLATE_HASH,
    ANNOTATION_BOOKS,
)
"""All that EDL reads of a Job; the last two it writes itself."""

POD_ANNOTATIONS = (
    *JOB_ANNOTATIONS,
    ANNOTATION_SERVER_ADDRESSES,
    ANNOTATION_MASTER_ADDRESS,
    ANNOTATION_TOKEN_SECRET,
    ANNOTATION_SNAPSHOT,
    ANNOTATION_KEPT_ENVIRONMENT,
    ANNOTATION_PLANNED_NODE,
    ANNOTATION_SCHEDULER,
    ANNOTATION_NODE_REQUEST,
    ANNOTATION_UNCOMMITTED,
)
"""All that pods may have: EDL copies some of a Job to its trainers."""

LABEL_JOB = "edl.training/job"
LABEL_ROLE = "edl.training/role"
LABEL_TRAINER_ID = "edl.training/trainer-id"
LABEL_TIER = "edl.training/tier"
LABEL_PREEMPTIBLE = "edl.training/preemptible"
LABEL_MASTER = "edl.training/master"
"""On the one pod of a job that hosts its master: "true"."""
LABEL_SERVER = "edl.training/parameter-server"
"""On a parameter server that EDL created: its index."""

LABEL_TRAINING_JOB = "edl.training/training-job"
"""On the Job of a TrainingJob: the name of both."""

LABELS = (
    LABEL_JOB,
    LABEL_ROLE,
    LABEL_TRAINER_ID,
    LABEL_TIER,
    LABEL_PREEMPTIBLE,
    LABEL_MASTER,
    LABEL_SERVER,
)

TRAINER_INFIX = "-trainer-"
SERVER_INFIX = "-ps-"
"""Between a job's name and the number of its trainer or parameter server in a pod's name."""

CLASS_SURPLUS = "edl-surplus"
CLASS_GUARANTEED = "edl-guaranteed"
CLASS_SUPPORT = "edl-support"

POLICY_CONFIGMAP = "edl-policy"
POLICY_KEY = "policy.yaml"
SYSTEM_NAMESPACE = "edl-system"
SCHEDULING_CONFIGMAP = "edl-scheduling"
"""Written by the reconciler: whether the scheduler's configuration has the extender's entries."""

MASTER_CONTAINER = "edl-master"
MASTER_PORT = 8790
MASTER_TOKEN_KEY = "token"  # noqa: S105 - the key's name in the Secret
SERVER_CONTAINER = "edl-pserver"
SERVER_PORT = 8791
EXCHANGE_PORT = 8792
"""Where trainers reach each other for synchronous training."""

_MAX_NAME_CHARS = 63
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""RFC 1035 label: the valid names of a Service."""


class Role(StrEnum):
    """The role of a pod in its job. Training pods of other operators count as trainers."""

    TRAINER = "trainer"
    PSERVER = "pserver"
    MASTER = "master"


class NodeRequest(StrEnum):
    """Why a pod was created though no node has room for it: so that an autoscaler adds one."""

    START = "start"
    """The job has not had its minimum yet."""
    REPLACEMENT = "replacement"
    """The job runs, and has lost guaranteed trainers."""


class Tier(StrEnum):
    """Order of preemption: surplus, then guaranteed, then support (design: priority tiers)."""

    SURPLUS = "surplus"
    GUARANTEED = "guaranteed"
    SUPPORT = "support"


def object_name(job: str, suffix: str) -> str:
    """The name of an object of a job: `<job><suffix>` where that is a valid name of a Service.

    Otherwise a name built from the job's name and a hash of it, which also ends with `suffix`.
    """
    name = job + suffix
    if len(name) <= _MAX_NAME_CHARS and _LABEL.fullmatch(name):
        return name
    digest = sha256(job.encode()).hexdigest()[:8]
    tail = f"-{digest}{suffix}"
    head = "edl-" + re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-")
    return head[: _MAX_NAME_CHARS - len(tail)].rstrip("-") + tail
