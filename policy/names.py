"""Names that EDL writes on Kubernetes objects, shared by all components. Pure.

They are an interface: pods and Jobs keep them across restarts and upgrades of EDL.
"""

import re
from enum import StrEnum
from hashlib import sha256

GROUP = "edl.training"
MANAGER = "edl.training/reconciler"
"""Value of `spec.managedBy` on Jobs whose pods the reconciler owns."""

TRAINER_RESOURCE = "edl.training/trainer"
"""The marker: an extended resource for which kube-scheduler calls the extender (`managedResources`)."""
DEFAULT_SCHEDULER = "default-scheduler"
"""`schedulerName` of pods that do not set it: kube-scheduler."""
NODE_NAME = "metadata.name"
"""The only field of a node that node affinity can match (core/v1 `matchFields`)."""
CHECK_RESOURCE = "edl.training/scheduler-check"
"""Extended resource that no node has; only the reconciler's test pod requests it."""

# The texts below are docs/annotations.md: `make reference` writes it.
ANNOTATION_MIN = "edl.training/min-trainers"
"""Trainers that start together or not at all: a whole number from 1 to the maximum. Minimum and maximum
make a Job elastic."""
ANNOTATION_MAX = "edl.training/max-trainers"
"""Maximum number of trainers: a whole number up to 10000."""
ANNOTATION_QUEUE = "edl.training/queue"
"""The queue of the job, one that the policy gives to its namespace."""
ANNOTATION_WEIGHT = "edl.training/weight"
"""Weight of the job in sharing, from 1 to 1000 or to the policy's `maxWeight`; 1 by default."""
ANNOTATION_MASTER = "edl.training/master"
"""`"true"` requests a master, which leases the data set's records to the trainers."""
ANNOTATION_MASTER_STEPS = "edl.training/master-max-steps"
"""Training ends after this many steps of all trainers together, 1 to 999999999. Needs a master."""
ANNOTATION_MASTER_HEARTBEAT = "edl.training/master-heartbeat-seconds"
"""Interval of the trainers' heartbeats, 0.05 to 60. Needs a master."""
ANNOTATION_MASTER_STUCK = "edl.training/master-stuck-seconds"
"""Seconds that a synchronous group waits for a member before it continues without it, 1 to 86400; 120 by
default. The first step of each process may compile and take 15 minutes; this limit is for later steps. Needs
a master."""
ANNOTATION_DATA = "edl.training/data"
"""Location of the training data, 1 to 1024 characters: for `edl train` a path in the trainers' pods, otherwise
any text that your program understands. Trainers have it as `EDL_DATA`. Needs a master."""
ANNOTATION_EPOCHS = "edl.training/epochs"
"""Number of epochs if the program does not set it, 1 to 1000000. Trainers have it as `EDL_EPOCHS`. Needs a
master."""
ANNOTATION_TOKEN_GENERATION = "edl.training/token-generation"  # noqa: S105 - a name
"""A whole number, 1 by default. After a change, new pods get another token (docs/install.md). Needs a master."""
ANNOTATION_MASTER_CPU = "edl.training/master-cpu"
"""CPU that EDL's master requests; 100m by default. Needs a master."""
ANNOTATION_MASTER_MEMORY = "edl.training/master-memory"
"""Memory that EDL's master requests; 128Mi by default, 64Mi at least. Needs a master."""
ANNOTATION_MASTER_TEMPLATE = "edl.training/master-template"
"""JSON of a pod template with one container and its volumes, at most 32 KiB: your own program instead of
EDL's master (docs/training-job.md). Needs `edl.training/master`."""
ANNOTATION_SERVERS = "edl.training/parameter-servers"
"""The number of the job's parameter servers, 1 to 64. EDL's own need a master."""
ANNOTATION_SERVER_CPU = "edl.training/parameter-server-cpu"
"""CPU that each parameter server requests; 500m by default."""
ANNOTATION_SERVER_MEMORY = "edl.training/parameter-server-memory"
"""Memory that each parameter server requests; 1Gi by default, 128Mi at least."""
ANNOTATION_CLAIM = "edl.training/checkpoint-claim"
"""The PersistentVolumeClaim for the checkpoints of the parameter servers. Without a claim each server has a
folder of four times its memory, enough for the three checkpoints that are kept by default."""
ANNOTATION_SERVER_TEMPLATE = "edl.training/parameter-server-template"
"""JSON of a pod template, at most 32 KiB. With containers: your own program instead of EDL's parameter
servers. Without containers: `nodeSelector`, `tolerations`, `affinity` and `imagePullSecrets` for EDL's
(docs/training-job.md)."""
ANNOTATION_SIZES = "edl.training/sizes"
"""Allowed numbers of trainers, separated by commas, such as `2,4,8`; the minimum is always allowed. If the
policy has `sizes` too, both must allow a number."""
ANNOTATION_PROCESSES = "edl.training/processes"
"""Number of processes that a trainer starts, 1 to 128. EDL only sets variables by it (docs/training-job.md)."""
ANNOTATION_ENVIRONMENT = "edl.training/environment"
"""`paddle`, `torch` or both, separated by a comma: frameworks whose variables all pods of the job get
(docs/training-job.md). `torch` needs a master."""
ANNOTATION_SERVER_ADDRESSES = "edl.training/parameter-server-addresses"
"""On a trainer: addresses of the job's parameter servers in order of index, separated by commas."""
ANNOTATION_MASTER_ADDRESS = "edl.training/master-address"
"""On a pod of a job with a master: the address of the master, which does not depend on its host pod."""
ANNOTATION_TOKEN_SECRET = "edl.training/token-secret"  # noqa: S105 - a name
"""On a pod of a job with a master: the Secret with the job's token."""
ANNOTATION_SNAPSHOT = "edl.training/snapshot-configmap"
"""On the pod that hosts the master: the ConfigMap for its snapshots."""
ANNOTATION_KEPT_ENVIRONMENT = "edl.training/kept-environment"
"""On a pod: variables (container/NAME) that the user set to values other than EDL's."""
ANNOTATION_PLANNED_NODE = "edl.training/planned-node"
"""On a trainer: the node on which the plan reserved capacity; the extender prefers that node."""
ANNOTATION_SCHEDULER = "edl.training/scheduler"
"""On a pod: the scheduler that EDL set; another webhook may have set another one afterwards."""
ANNOTATION_NODE_REQUEST = "edl.training/node-request"
"""On a pod that waits for a new node: `start` of a job, or `replacement`."""
ANNOTATION_UNCOMMITTED = "edl.training/uncommitted-seconds"
"""On a trainer: seconds of training that would be lost with it, reported by the job's master."""
ANNOTATION_BOOKS = "edl.training/books"
"""The job's trainer accounting, JSON with a version: open trainer ids, and how other trainers ended."""

ANNOTATION_TEMPLATE_HASH = "edl.training/template-hash"
"""On the Job of a TrainingJob: identifies the pod template of the TrainingJob."""

DRAIN_BLOCKS = (
    "karpenter.sh/do-not-disrupt",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
)
"""Annotations of a pod that keep autoscalers from removing its node; surplus trainers never have them."""

JOB_ANNOTATIONS = (
    ANNOTATION_MIN,
    ANNOTATION_MAX,
    ANNOTATION_QUEUE,
    ANNOTATION_WEIGHT,
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_STUCK,
    ANNOTATION_DATA,
    ANNOTATION_EPOCHS,
    ANNOTATION_TOKEN_GENERATION,
    ANNOTATION_MASTER_CPU,
    ANNOTATION_MASTER_MEMORY,
    ANNOTATION_MASTER_TEMPLATE,
    ANNOTATION_SERVERS,
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVER_MEMORY,
    ANNOTATION_CLAIM,
    ANNOTATION_SERVER_TEMPLATE,
    ANNOTATION_SIZES,
    ANNOTATION_PROCESSES,
    ANNOTATION_ENVIRONMENT,
    ANNOTATION_TEMPLATE_HASH,
    ANNOTATION_BOOKS,
)
"""All annotations of a Job that EDL reads."""
OWN_JOB_ANNOTATIONS = (ANNOTATION_TEMPLATE_HASH, ANNOTATION_BOOKS)
"""Annotations of a Job that EDL writes."""

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
"""All annotations of EDL that pods may have. EDL copies some of a Job to its trainers."""

LABEL_JOB = "edl.training/job"
"""The name of the pod's job. Users set it on their own pods that belong to a job."""
LABEL_ROLE = "edl.training/role"
"""`trainer`, `pserver` or `master`. Users set it on their own pods, too."""
LABEL_TRAINER_ID = "edl.training/trainer-id"
"""The number of a trainer, which is never used again in its job."""
LABEL_TIER = "edl.training/tier"
"""`surplus`, `guaranteed` or `support`: the order of preemption."""
LABEL_PREEMPTIBLE = "edl.training/preemptible"
"""`"true"` if EDL may evict the pod, `"false"` on support pods, which only kube-scheduler preempts."""
LABEL_MASTER = "edl.training/master"
"""`"true"` on the pod of a job that hosts its master."""
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
"""Stand between the job's name and the number of a trainer or parameter server in a pod's name."""

CLASS_SURPLUS = "edl-surplus"
CLASS_LOW_SHARE = "edl-surplus-low-share"
"""Class of surplus trainers that are preempted after `CLASS_SURPLUS` (docs/decisions/0072)."""
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
"""Port of trainers for synchronous training."""

_MAX_NAME_CHARS = 63
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""RFC 1035 label: the valid names of a Service."""


class Role(StrEnum):
    """The role of a pod in its job. Training pods of other operators count as trainers."""

    TRAINER = "trainer"
    PSERVER = "pserver"
    MASTER = "master"


class NodeRequest(StrEnum):
    """Why a pending pod was created without capacity for it, so that an autoscaler adds a node."""

    START = "start"
    """The job has never had its minimum."""
    REPLACEMENT = "replacement"
    """The job runs and has lost guaranteed trainers."""


class Tier(StrEnum):
    """Tiers in the order of preemption: surplus, guaranteed, support (design: priority tiers)."""

    SURPLUS = "surplus"
    GUARANTEED = "guaranteed"
    SUPPORT = "support"


def server_name(job: str, number: int) -> str:
    """Returns the name of a parameter server's pod and Service, which its replacement gets too."""
    return object_name(job, f"{SERVER_INFIX}{number}")


def object_name(job: str, suffix: str) -> str:
    """Returns the name of an object of a job: `<job><suffix>` if that is a valid name of a Service.

    Otherwise the name consists of a part of the job's name, a hash of it, and `suffix`.
    """
    name = job + suffix
    if len(name) <= _MAX_NAME_CHARS and _LABEL.fullmatch(name):
        return name
    digest = sha256(job.encode()).hexdigest()[:8]
    tail = f"-{digest}{suffix}"
    head = "edl-" + re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-")
    return head[: _MAX_NAME_CHARS - len(tail)].rstrip("-") + tail
