"""Names that EDL writes on Kubernetes objects: one place, so that every room means the same.

They are an interface: pods and Jobs in a cluster carry them across restarts and upgrades.
"""

import re
from enum import StrEnum
from hashlib import sha256

GROUP = "edl.training"
MANAGER = "edl.training/reconciler"
"""Value of `spec.managedBy` on Jobs whose pods the reconciler owns."""

TRAINER_RESOURCE = "edl.training/trainer"
"""Extended resource that makes kube-scheduler ask the extender (`managedResources`)."""

ANNOTATION_MIN = "edl.training/min-trainers"
ANNOTATION_MAX = "edl.training/max-trainers"
ANNOTATION_QUEUE = "edl.training/queue"
ANNOTATION_WEIGHT = "edl.training/weight"
ANNOTATION_MASTER = "edl.training/master"
"""On a Job: "true" asks for a master that hands out its data."""
ANNOTATION_MASTER_STEPS = "edl.training/master-max-steps"
"""On such a Job, and on the pod that carries its master: training ends after so many steps."""
ANNOTATION_MASTER_HEARTBEAT = "edl.training/master-heartbeat-seconds"
"""There too: how often the master wants to hear of a trainer."""
ANNOTATION_SERVERS = "edl.training/parameter-servers"
"""On a Job with a master: how many parameter servers it wants."""
ANNOTATION_SERVER_CPU = "edl.training/parameter-server-cpu"
ANNOTATION_SERVER_MEMORY = "edl.training/parameter-server-memory"
ANNOTATION_CLAIM = "edl.training/checkpoint-claim"
"""On a Job with parameter servers: the PersistentVolumeClaim that their checkpoints go to."""
ANNOTATION_SERVER_ADDRESSES = "edl.training/parameter-server-addresses"
"""On a trainer of such a job: where it reaches them, in order of index, with commas between."""
ANNOTATION_MASTER_ADDRESS = "edl.training/master-address"
"""On a pod of such a job: where it reaches the master, whichever pod carries it."""
ANNOTATION_KEPT = "edl.training/kept-environment"
"""On a pod: variables (container/NAME) that the user had set and EDL would have set otherwise."""
ANNOTATION_PLANNED_NODE = "edl.training/planned-node"
"""On a trainer: where the plan that made it had room for it; the extender prefers that node."""
ANNOTATION_UNCOMMITTED = "edl.training/uncommitted-seconds"
"""On a trainer: how much of its training would be lost with it, as its job's master says."""
ANNOTATION_BOOKS = "edl.training/books"
"""JSON on a Job: which trainer ids exist and how the others ended (reconciler.books)."""

LABEL_JOB = "edl.training/job"
LABEL_ROLE = "edl.training/role"
LABEL_TRAINER_ID = "edl.training/trainer-id"
LABEL_TIER = "edl.training/tier"
LABEL_PREEMPTIBLE = "edl.training/preemptible"
LABEL_MASTER = "edl.training/master"
"""On the one pod of a job that carries its master: "true"."""
LABEL_SERVER = "edl.training/parameter-server"
"""On a parameter server that EDL made: its index."""

CLASS_SURPLUS = "edl-surplus"
CLASS_GUARANTEED = "edl-guaranteed"
CLASS_SUPPORT = "edl-support"

POLICY_CONFIGMAP = "edl-policy"
POLICY_KEY = "policy.yaml"
SYSTEM_NAMESPACE = "edl-system"

MASTER_CONTAINER = "edl-master"
MASTER_PORT = 8790
MASTER_TOKEN_KEY = "token"  # noqa: S105 - the key's name in the Secret
SERVER_CONTAINER = "edl-pserver"
SERVER_PORT = 8791
EXCHANGE_PORT = 8792
"""Where trainers reach each other for synchronous training."""

_LONGEST = 63
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""RFC 1035: what a Service may be called."""


class Role(StrEnum):
    """What a pod does in its job. Pods of other operators that train count as trainers."""

    TRAINER = "trainer"
    PSERVER = "pserver"
    MASTER = "master"


class Tier(StrEnum):
    """Who gives way first: surplus, then guaranteed, then support (design: priority tiers)."""

    SURPLUS = "surplus"
    GUARANTEED = "guaranteed"
    SUPPORT = "support"


def object_name(job: str, suffix: str) -> str:
    """What an object of a job is called: `<job><suffix>` where that can name a Service.

    Else a name made of the job's and a part of its hash, which ends with `suffix` as well.
    """
    name = job + suffix
    if len(name) <= _LONGEST and _LABEL.fullmatch(name):
        return name
    digest = sha256(job.encode()).hexdigest()[:8]
    tail = f"-{digest}{suffix}"
    head = "edl-" + re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-")
    return head[: _LONGEST - len(tail)].rstrip("-") + tail
