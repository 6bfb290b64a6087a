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

# The texts below are docs/annotations.md: `make reference` writes it.
ANNOTATION_MIN = "edl.training/min-trainers"
"""The trainers that start together or not at all: a whole number from 1 to the maximum. It makes a Job
elastic, together with the maximum."""
ANNOTATION_MAX = "edl.training/max-trainers"
"""The most trainers that the job grows to: a whole number up to 10000."""
ANNOTATION_QUEUE = "edl.training/queue"
"""The queue that the job counts in, one that the policy gives to its namespace."""
ANNOTATION_WEIGHT = "edl.training/weight"
"""Its weight in sharing, 1 to 1000, or to the policy's `maxWeight`; 1 by default."""
ANNOTATION_MASTER = "edl.training/master"
"""`"true"` requests a master, which leases the data set's records to the trainers."""
ANNOTATION_MASTER_STEPS = "edl.training/master-max-steps"
"""Training ends after this many steps of all trainers together, 1 to 999999999. Needs a master."""
ANNOTATION_MASTER_HEARTBEAT = "edl.training/master-heartbeat-seconds"
"""Interval of the trainers' heartbeats, 0.05 to 60. Needs a master."""
ANNOTATION_MASTER_STUCK = "edl.training/master-stuck-seconds"
"""How long a synchronous group waits for a member before it goes on without it, 1 to 86400; 120 by
default. The first step of each process may take 15 minutes, as it may compile: this is for later ones. Needs
a master."""
ANNOTATION_DATA = "edl.training/data"
"""Where the training data is, 1 to 1024 characters: a path in the trainers' pods for `edl train`, or what your
program reads. Trainers have it as `EDL_DATA`. Needs a master."""
ANNOTATION_EPOCHS = "edl.training/epochs"
"""How often each record is trained on where the program does not say it, 1 to 1000000. Trainers have it as
`EDL_EPOCHS`. Needs a master."""
ANNOTATION_TOKEN_GENERATION = "edl.training/token-generation"  # noqa: S105 - a name
"""A whole number, 1 by default: another one gives pods that are created from then on another token
(docs/install.md). Needs a master."""
ANNOTATION_MASTER_CPU = "edl.training/master-cpu"
"""CPU that EDL's master requests; 100m by default. Needs a master."""
ANNOTATION_MASTER_MEMORY = "edl.training/master-memory"
"""Memory that EDL's master requests; 128Mi by default, 64Mi at least. Needs a master."""
ANNOTATION_MASTER_TEMPLATE = "edl.training/master-template"
"""JSON of a pod template with one container and its volumes, at most 32 KiB: a program of yours in place of
EDL's master (docs/training-job.md). Needs `edl.training/master`."""
ANNOTATION_SERVERS = "edl.training/parameter-servers"
"""The number of the job's parameter servers, 1 to 64. EDL's own need a master."""
ANNOTATION_SERVER_CPU = "edl.training/parameter-server-cpu"
"""CPU that each parameter server requests; 500m by default."""
ANNOTATION_SERVER_MEMORY = "edl.training/parameter-server-memory"
"""Memory that each parameter server requests; 1Gi by default, 128Mi at least."""
ANNOTATION_CLAIM = "edl.training/checkpoint-claim"
"""The PersistentVolumeClaim for the checkpoints of the parameter servers. Without one each server has a
folder of four times its memory, enough for the three checkpoints that are kept by default."""
ANNOTATION_SERVER_TEMPLATE = "edl.training/parameter-server-template"
"""JSON of a pod template, at most 32 KiB: with containers a program of yours in place of EDL's parameter
servers, without containers where EDL's own run: `nodeSelector`, `tolerations`, `affinity`,
`imagePullSecrets` (docs/training-job.md)."""
ANNOTATION_SIZES = "edl.training/sizes"
"""The allowed numbers of trainers with commas, such as `2,4,8`; the minimum is always allowed. Where the
policy has `sizes` too, those that both allow."""
ANNOTATION_PROCESSES = "edl.training/processes"
"""How many processes a trainer starts, 1 to 128; only variables say so (docs/training-job.md)."""
ANNOTATION_ENVIRONMENT = "edl.training/environment"
"""`paddle`, `torch` or both with a comma: frameworks whose variables all pods of the job get
(docs/training-job.md). `torch` needs a master."""
ANNOTATION_SERVER_ADDRESSES = "edl.training/parameter-server-addresses"
"""On a trainer: addresses of the job's parameter servers in order of index, separated by commas."""
ANNOTATION_MASTER_ADDRESS = "edl.training/master-address"
"""On a pod of a job with a master: its address, the same whichever pod hosts it."""
ANNOTATION_TOKEN_SECRET = "edl.training/token-secret"  # noqa: S105 - a name
"""On a pod of a job with a master: the Secret with the job's token."""
ANNOTATION_SNAPSHOT = "edl.training/snapshot-configmap"
"""On the pod that hosts the master: the ConfigMap for its snapshots."""
ANNOTATION_KEPT_ENVIRONMENT = "edl.training/kept-environment"
"""On a pod: variables (container/NAME) that the user set to other values than EDL would."""
ANNOTATION_PLANNED_NODE = "edl.training/planned-node"
"""On a trainer: the node on which the plan reserved capacity; the extender prefers that node."""
ANNOTATION_SCHEDULER = "edl.training/scheduler"
"""On a pod: the scheduler that EDL has written into it; another webhook may write another one."""
ANNOTATION_NODE_REQUEST = "edl.training/node-request"
"""On a pod that waits for a node which does not exist yet: `start` of a job or `replacement`."""
ANNOTATION_UNCOMMITTED = "edl.training/uncommitted-seconds"
"""On a trainer: seconds of training that would be lost with it, as its job's master reports."""
ANNOTATION_BOOKS = "edl.training/books"
"""The job's trainer accounting, JSON with a version: its open trainer ids, and how the others ended."""

ANNOTATION_TEMPLATE_HASH = "edl.training/template-hash"
"""On the Job of a TrainingJob: identifies the pod template of the TrainingJob."""

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
"""All that EDL reads of a Job."""
OWN_JOB_ANNOTATIONS = (ANNOTATION_TEMPLATE_HASH, ANNOTATION_BOOKS)
"""Those among them that EDL writes itself."""

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
"""The name of the pod's job. Users write it on pods of their own that belong to a job."""
LABEL_ROLE = "edl.training/role"
"""`trainer`, `pserver` or `master`. Users write it on such pods too."""
LABEL_TRAINER_ID = "edl.training/trainer-id"
"""The number of a trainer, which no other trainer of its job ever has."""
LABEL_TIER = "edl.training/tier"
"""`surplus`, `guaranteed` or `support`: the order of preemption."""
LABEL_PREEMPTIBLE = "edl.training/preemptible"
"""`"true"` where EDL itself may evict the pod, `"false"` on support pods, which only kube-scheduler preempts."""
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
CLASS_LOW_SHARE = "edl-surplus-low-share"
"""Of surplus trainers that are preempted after those of `CLASS_SURPLUS` (docs/decisions/0072)."""
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


def server_name(job: str, number: int) -> str:
    """Returns the name of a parameter server's pod and Service, which its replacement gets too."""
    return object_name(job, f"{SERVER_INFIX}{number}")


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
