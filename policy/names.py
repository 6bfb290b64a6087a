"""Names that EDL writes on Kubernetes objects: one place, so that every room means the same.

They are an interface: pods and Jobs in a cluster carry them across restarts and upgrades.
"""

from enum import StrEnum

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

CLASS_SURPLUS = "edl-surplus"
CLASS_GUARANTEED = "edl-guaranteed"
CLASS_SUPPORT = "edl-support"

POLICY_CONFIGMAP = "edl-policy"
POLICY_KEY = "policy.yaml"
SYSTEM_NAMESPACE = "edl-system"

MASTER_CONTAINER = "edl-master"
MASTER_PORT = 8790
MASTER_TOKEN_KEY = "token"  # noqa: S105 - the key's name in the Secret


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
