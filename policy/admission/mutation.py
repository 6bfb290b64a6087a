"""Admission mutations: training pods become low-priority and preemptible, elastic Jobs managed.

Called by `webhook.review`. Pure: takes the object, the policy and the live priority classes, and
returns JSON Patch operations with warnings. A patched object needs no further operations.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from policy.admission import (
    environment,
    failure_policy,
    job_options,
    job_spec,
    servers,
    sidecar,
    template_limits,
    unknown_names,
    unstructured,
)
from policy.admission.patch import Operation, Patch
from policy.document.model import Policy
from policy.names import (
    ANNOTATION_MASTER,
    ANNOTATION_NODE_REQUEST,
    ANNOTATION_SCHEDULER,
    CLASS_LOW_SHARE,
    DEFAULT_SCHEDULER,
    DRAIN_BLOCKS,
    LABEL_JOB,
    LABEL_PREEMPTIBLE,
    LABEL_ROLE,
    LABEL_TIER,
    MANAGER,
    TRAINER_RESOURCE,
    Role,
    Tier,
)
from policy.priority_classes import CLASS_OF, PriorityClassValues, class_of
from policy.scheduling import UNMARKED, Scheduling

_MAX_LABEL_CHARS = 63


@dataclass(frozen=True, slots=True)
class Mutation:
    """The changes to an object, and warnings for its author.

    Attributes:
        operations: JSON Patch, empty where nothing changes.
        role: The pod's role in training; None for pods that are not training.
        tier: Its tier; None for pods that are not training.
        warnings: One line each, which `kubectl` prints.
    """

    operations: tuple[Operation, ...] = ()
    role: Role | None = None
    tier: Tier | None = None
    warnings: tuple[str, ...] = ()


UNTOUCHED = Mutation()
_RAISES_NOTHING = (
    f"{LABEL_ROLE} and {LABEL_TIER} do not raise the priority: the pod's own is lower or never preempts, so "
    "it counts as surplus"
)
NO_IMAGE = (
    f"{ANNOTATION_MASTER}: EDL's webhook has no image for masters: start it with --master-image"
)


def pod_patch(
    pod: Mapping[str, object],
    namespace: str,
    policy: Policy,
    classes: Mapping[str, PriorityClassValues],
    master_image: str = "",
    *,
    scheduling: Scheduling = UNMARKED,
) -> Mutation:
    """Makes a training pod preemptible: labels, priority, grace period and scheduler.

    A pod is training if it has the job label, or if a selector of the policy matches it (pods of
    other operators, which are always surplus). Pods of protected namespaces are never training.

    Args:
        pod: core/v1 Pod as admission receives it: defaulted, with its priority filled in.
        namespace: Namespace of the request; the object's own may be empty.
        policy: The active policy.
        classes: Live PriorityClasses by name.
        master_image: Image of masters and parameter servers; "" where none is configured.
        scheduling: How training pods ask for a scheduler now.
    """
    labels = unstructured.labels(pod)
    if policy.protects(namespace):
        return UNTOUCHED
    warnings: list[str] = []
    if LABEL_JOB in labels:
        role = _role(labels, warnings)
        tier = _tier(role, labels)
    else:
        selected = policy.training_role(namespace, labels)
        if selected is None:
            return UNTOUCHED
        role, tier = selected, Tier.SURPLUS
    spec = unstructured.mapping(pod, "spec")
    if _raises(spec, classes.get(CLASS_OF[tier])):
        tier = Tier.SURPLUS
        warnings.append(_RAISES_NOTHING)
    patch = Patch(pod)
    patch.put(("metadata", "labels", LABEL_ROLE), role.value)
    patch.put(("metadata", "labels", LABEL_TIER), tier.value)
    patch.put(("metadata", "labels", LABEL_PREEMPTIBLE), _preemptible(tier))
    class_name = _class_name(spec, tier)
    if not _raises(spec, classes.get(class_name)):
        _put_priority(patch, spec, class_name, classes, warnings)
    _put_grace(patch, spec, policy.tiers.grace_seconds)
    awaits_node = ANNOTATION_NODE_REQUEST in unstructured.annotations(pod)
    _put_scheduler(patch, spec, scheduling.unmarked if awaits_node else scheduling)
    if tier is Tier.SURPLUS:
        _drop_drain_blocks(patch, pod)
    warnings += environment.add(patch, pod, policy.tiers.grace_seconds)
    warnings += _put_master(patch, pod, namespace, master_image) + unknown_names.warnings(pod)
    return Mutation(patch.operations(), role, tier, tuple(warnings))


def job_patch(job: Mapping[str, object], namespace: str, policy: Policy) -> Mutation:
    """Hands an elastic batch/v1 Job to the reconciler; only at creation, as managedBy is immutable.

    `parallelism` becomes min, which `kubectl get jobs` then shows. Jobs that are not elastic, and
    all Jobs of protected namespaces, stay unchanged.

    Raises:
        JobError: the annotations or the spec contradict elasticity; the message names the field.
    """
    annotations = unstructured.annotations(job)
    if not job_spec.is_elastic(annotations):
        return UNTOUCHED
    if policy.protects(namespace):
        warning = f"the policy protects namespace {namespace}, so EDL does not manage this Job"
        return Mutation(warnings=(warning,))
    spec = unstructured.mapping(job, "spec")
    low, _ = check_job(annotations, spec)
    patch = Patch(job)
    if spec.get("managedBy") is None:
        patch.put(("spec", "managedBy"), MANAGER)
    if "completions" in spec and job_spec.defaulted_completions(spec):
        patch.drop(("spec", "completions"))
    patch.put(("spec", "parallelism"), low)
    name = unstructured.mapping(job, "metadata").get("name")
    if isinstance(name, str) and 0 < len(name) <= _MAX_LABEL_CHARS:
        patch.put(("spec", "template", "metadata", "labels", LABEL_JOB), name)
    patch.put(("spec", "template", "metadata", "labels", LABEL_ROLE), Role.TRAINER.value)
    template = unstructured.mapping(spec, "template")
    return Mutation(
        patch.operations(), Role.TRAINER, warnings=tuple(unknown_names.warnings(template))
    )


def check_job(annotations: Mapping[str, str], spec: Mapping[str, object]) -> tuple[int, int]:
    """(min, max) trainers of a valid elastic Job.

    Raises:
        JobError: the first error; the message names the field and what would be valid.
    """
    trainer_bounds = job_spec.bounds(annotations)
    job_spec.weight(annotations)
    job_spec.queue(annotations)
    job_spec.master(annotations)
    job_spec.master_settings(annotations)
    job_spec.token_generation(annotations)
    servers.requested(annotations)
    job_options.check(annotations)
    job_spec.check_spec(spec)
    template_limits.check(unstructured.mapping(spec, "template"))
    job_spec.check_template(spec, annotations)
    failure_policy.check(spec)
    return trainer_bounds


def _role(labels: Mapping[str, str], warnings: list[str]) -> Role:
    """The role in the label; trainer where the label is missing or invalid."""
    named = labels.get(LABEL_ROLE, Role.TRAINER.value)
    try:
        return Role(named)
    except ValueError:
        warnings.append(
            f"{LABEL_ROLE} is {named[:40]!r}, treated as trainer: write master, pserver or trainer"
        )
        return Role.TRAINER


def _tier(role: Role, labels: Mapping[str, str]) -> Tier:
    """Surplus for a trainer unless labelled guaranteed; support for the other roles.

    A user who sets the guaranteed label gains little: that class is below every service too.
    """
    if role is not Role.TRAINER:
        return Tier.SUPPORT
    return Tier.GUARANTEED if labels.get(LABEL_TIER) == Tier.GUARANTEED.value else Tier.SURPLUS


def _raises(spec: Mapping[str, object], priority_class: PriorityClassValues | None) -> bool:
    """Whether the class has a higher priority than the pod, or preempts where the pod may not.

    Anybody may write the labels of their pods, but a class of low priority may be all that they
    are allowed. Trainers and servers that EDL creates name their class themselves.
    """
    if priority_class is None:
        return False
    priority = spec.get("priority")
    is_higher = isinstance(priority, int) and priority < priority_class.value
    never = spec.get("preemptionPolicy") == "Never"
    return is_higher or (never and priority_class.preemption_policy != "Never")


def _class_name(spec: Mapping[str, object], tier: Tier) -> str:
    """The priority class of a pod of this tier: surplus that names the second one keeps it."""
    low_share = tier is Tier.SURPLUS and spec.get("priorityClassName") == CLASS_LOW_SHARE
    return class_of(tier, low_share=low_share)


def _preemptible(tier: Tier) -> str:
    """Whether EDL itself may evict the pod. Only kube-scheduler preempts support pods, and last."""
    return "false" if tier is Tier.SUPPORT else "true"


def _put_priority(
    patch: Patch,
    spec: Mapping[str, object],
    name: str,
    classes: Mapping[str, PriorityClassValues],
    warnings: list[str],
) -> None:
    """Sets class, value and preemptionPolicy together.

    The Priority plugin has filled in the last two already and runs again after us; it rejects the
    pod if any of the three differs from the class.
    """
    priority_class = classes.get(name)
    if priority_class is None:
        warnings.append(f"PriorityClass {name} does not exist (yet): the pod keeps its priority")
        return
    requested = spec.get("priorityClassName")
    if requested not in (None, "", name) and not _is_default(str(requested), classes):
        warnings.append(
            f"changed priorityClassName from {str(requested)[:40]} to {name}, so that services can preempt training"
        )
    patch.put(("spec", "priorityClassName"), name)
    patch.put(("spec", "priority"), priority_class.value)
    patch.put(("spec", "preemptionPolicy"), priority_class.preemption_policy)


def _is_default(name: str, classes: Mapping[str, PriorityClassValues]) -> bool:
    priority_class = classes.get(name)
    return priority_class is not None and priority_class.is_default


def _put_grace(patch: Patch, spec: Mapping[str, object], cap_s: int) -> None:
    """Caps the termination grace period, because reclaim waits for it."""
    requested = spec.get("terminationGracePeriodSeconds")
    grace_s = requested if isinstance(requested, int) else environment.DEFAULT_GRACE_S
    if grace_s > cap_s:
        patch.put(("spec", "terminationGracePeriodSeconds"), cap_s)


def _put_scheduler(patch: Patch, spec: Mapping[str, object], scheduling: Scheduling) -> None:
    """Names the scheduler of training pods; requests the resource for which it calls the extender."""
    named = str(spec.get("schedulerName") or DEFAULT_SCHEDULER)
    scheduler = scheduling.scheduler_of(named)
    if scheduler != named:
        patch.put(("spec", "schedulerName"), scheduler)
        patch.put(("metadata", "annotations", ANNOTATION_SCHEDULER), scheduler)
    if not scheduling.marks(named):
        return
    containers = unstructured.objects(spec, "containers")
    resources = [unstructured.mapping(container, "resources") for container in containers]
    requested = any(TRAINER_RESOURCE in unstructured.mapping(r, "limits") for r in resources)
    if requested or not containers or not containers[0]:  # what is not an object reads as empty
        return
    for kind in ("limits", "requests"):
        patch.put(("spec", "containers", 0, "resources", kind, TRAINER_RESOURCE), "1")


def _drop_drain_blocks(patch: Patch, pod: Mapping[str, object]) -> None:
    """Removes what would keep autoscalers from draining the node: surplus holds no node."""
    annotations = unstructured.annotations(pod)
    for name in DRAIN_BLOCKS:
        if name in annotations:
            patch.drop(("metadata", "annotations", name))


def _put_master(patch: Patch, pod: Mapping[str, object], namespace: str, image: str) -> list[str]:
    """Adds what only admission has: the master's sidecar, the image of parameter servers."""
    labels = unstructured.labels(pod)
    master = sidecar.is_master_host(labels) and not sidecar.has_sidecar(pod)
    server = servers.is_server(labels) and servers.lacks_image(pod)
    if (master or server) and not image:
        return [NO_IMAGE]
    if master:
        sidecar.add_master(patch, pod, namespace, image)
    if server:
        servers.add_image(patch, pod, image)
    return []
