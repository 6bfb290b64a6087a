"""What admission changes: pods that train become low-priority and preemptible, Jobs become ours.

Who calls: `webhook.review`, and `reconciler` where it repairs what admission missed. Pure:
object, policy and live priority classes in, JSON Patch operations and their reasons out.
Applying a patch and asking again gives no operations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from policy import elastic, environment, servers, sidecar
from policy.model import Policy
from policy.names import (
    ANNOTATION_MASTER,
    CLASS_GUARANTEED,
    CLASS_SUPPORT,
    CLASS_SURPLUS,
    LABEL_JOB,
    LABEL_PREEMPTIBLE,
    LABEL_ROLE,
    LABEL_TIER,
    MANAGER,
    TRAINER_RESOURCE,
    Role,
    Tier,
)
from policy.patch import Operation, Patch

_DEFAULT_GRACE_S = 30
"""core/v1 default of terminationGracePeriodSeconds."""
_LONGEST_LABEL = 63


class PriorityClass(NamedTuple):
    """scheduling.k8s.io/v1 `PriorityClass`, the part that must be copied into pods."""

    value: int
    preemption_policy: str = "PreemptLowerPriority"
    is_default: bool = False
    """Pods that name no class get this one from the API server."""


EDL_CLASSES: Mapping[str, PriorityClass] = {
    CLASS_SURPLUS: PriorityClass(-1000, "Never"),
    CLASS_GUARANTEED: PriorityClass(-8),
    CLASS_SUPPORT: PriorityClass(-5),
}
"""The classes as EDL creates them (design: priority tiers). A patch copies the live ones."""

_CLASS_OF = {
    Tier.SURPLUS: CLASS_SURPLUS,
    Tier.GUARANTEED: CLASS_GUARANTEED,
    Tier.SUPPORT: CLASS_SUPPORT,
}


@dataclass(frozen=True, slots=True)
class Mutation:
    """What to change, and what a person should know about it.

    Attributes:
        operations: JSON Patch, empty where nothing is to change.
        role: The pod's role in training; None for pods that are none of ours.
        tier: Its tier; None likewise.
        warnings: One line each, for `kubectl` to show.
    """

    operations: tuple[Operation, ...] = ()
    role: Role | None = None
    tier: Tier | None = None
    warnings: tuple[str, ...] = ()


UNTOUCHED = Mutation()
NO_IMAGE = (
    f"{ANNOTATION_MASTER}: EDL's webhook knows no image for masters: start it with --master-image"
)


def pod_patch(
    pod: Mapping[str, object],
    namespace: str,
    policy: Policy,
    classes: Mapping[str, PriorityClass],
    master_image: str = "",
) -> Mutation:
    """Makes a training pod give way: labels, priority, grace and the trainer resource.

    A pod trains if it carries the job label, or if a selector of the policy names it (pods of
    other operators: always surplus). Pods of protected namespaces never do.

    Args:
        pod: core/v1 Pod as admission sees it: defaulted, priority filled in.
        namespace: Of the request; the object's own may be empty.
        policy: The active one.
        classes: Live PriorityClasses by name.
        master_image: What masters and parameter servers run; "" for none known.
    """
    labels = _texts(_mapping(pod.get("metadata")).get("labels"))
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
    patch = Patch(pod)
    patch.put(("metadata", "labels", LABEL_ROLE), role.value)
    patch.put(("metadata", "labels", LABEL_TIER), tier.value)
    patch.put(("metadata", "labels", LABEL_PREEMPTIBLE), _preemptible(tier))
    _put_priority(patch, _mapping(pod.get("spec")), _CLASS_OF[tier], classes, warnings)
    _put_grace(patch, _mapping(pod.get("spec")), policy.tiers.grace_seconds)
    _put_resource(patch, _mapping(pod.get("spec")))
    warnings += _put_master(patch, pod, namespace, master_image)
    return Mutation(patch.operations(), role, tier, tuple(warnings))


def job_patch(job: Mapping[str, object], namespace: str, policy: Policy) -> Mutation:
    """Hands an elastic batch/v1 Job to the reconciler; only at creation, managedBy is immutable.

    `parallelism` becomes min: what `kubectl get jobs` shows as wanted at least. Jobs that are
    not elastic, and all of protected namespaces, stay as they are.

    Raises:
        JobError: the annotations or the spec contradict elasticity; naming the field.
    """
    metadata = _mapping(job.get("metadata"))
    annotations = _texts(metadata.get("annotations"))
    if not elastic.is_elastic(annotations):
        return UNTOUCHED
    if policy.protects(namespace):
        warning = (
            f"namespace {namespace} is protected by the policy: this Job stays an ordinary one"
        )
        return Mutation(warnings=(warning,))
    spec = _mapping(job.get("spec"))
    low, _ = check_job(annotations, spec)
    patch = Patch(job)
    if spec.get("managedBy") is None:
        patch.put(("spec", "managedBy"), MANAGER)
    if "completions" in spec and elastic.defaulted_completions(spec):
        patch.drop(("spec", "completions"))
    patch.put(("spec", "parallelism"), low)
    name = metadata.get("name")
    if isinstance(name, str) and 0 < len(name) <= _LONGEST_LABEL:
        patch.put(("spec", "template", "metadata", "labels", LABEL_JOB), name)
    patch.put(("spec", "template", "metadata", "labels", LABEL_ROLE), Role.TRAINER.value)
    return Mutation(patch.operations(), Role.TRAINER)


def check_job(annotations: Mapping[str, str], spec: Mapping[str, object]) -> tuple[int, int]:
    """(min, max) trainers of an elastic Job in which everything is right.

    Raises:
        JobError: the first thing that is not, naming the field and what would be right.
    """
    found = elastic.bounds(annotations)
    elastic.weight(annotations)
    elastic.queue(annotations)
    elastic.master(annotations)
    elastic.master_settings(annotations)
    servers.asked(annotations)
    elastic.check_spec(spec)
    return found


def _role(labels: Mapping[str, str], warnings: list[str]) -> Role:
    """The role that the label names; a trainer where it names none."""
    named = labels.get(LABEL_ROLE, Role.TRAINER.value)
    try:
        return Role(named)
    except ValueError:
        warnings.append(
            f"{LABEL_ROLE} is {named[:40]!r}, taken as trainer: write master, pserver or trainer"
        )
        return Role.TRAINER


def _tier(role: Role, labels: Mapping[str, str]) -> Tier:
    """A trainer is surplus until the reconciler says guaranteed; the rest is support.

    A user who writes guaranteed gains little: that class is below every service too.
    """
    if role is not Role.TRAINER:
        return Tier.SUPPORT
    return Tier.GUARANTEED if labels.get(LABEL_TIER) == Tier.GUARANTEED.value else Tier.SURPLUS


def _preemptible(tier: Tier) -> str:
    """Whether EDL itself may take the pod. Support pods fall to kube-scheduler alone, and last."""
    return "false" if tier is Tier.SUPPORT else "true"


def _put_priority(
    patch: Patch,
    spec: Mapping[str, object],
    name: str,
    classes: Mapping[str, PriorityClass],
    warnings: list[str],
) -> None:
    """Writes class, value and preemptionPolicy together.

    The Priority plugin has filled the last two in already and runs again after us; it refuses
    the pod if any of the three is not what the class says.
    """
    wanted = classes.get(name)
    if wanted is None:
        warnings.append(f"PriorityClass {name} does not exist (yet): the pod keeps its priority")
        return
    asked = spec.get("priorityClassName")
    if asked not in (None, "", name) and not _is_default(str(asked), classes):
        warnings.append(
            f"priorityClassName {str(asked)[:40]} became {name}: training gives way to services"
        )
    patch.put(("spec", "priorityClassName"), name)
    patch.put(("spec", "priority"), wanted.value)
    patch.put(("spec", "preemptionPolicy"), wanted.preemption_policy)


def _is_default(name: str, classes: Mapping[str, PriorityClass]) -> bool:
    found = classes.get(name)
    return found is not None and found.is_default


def _put_grace(patch: Patch, spec: Mapping[str, object], cap_s: int) -> None:
    """Caps the stop time: reclaim waits for it."""
    asked = spec.get("terminationGracePeriodSeconds")
    grace_s = asked if isinstance(asked, int) else _DEFAULT_GRACE_S
    if grace_s > cap_s:
        patch.put(("spec", "terminationGracePeriodSeconds"), cap_s)


def _put_resource(patch: Patch, spec: Mapping[str, object]) -> None:
    """Requests one trainer on the first container, which makes kube-scheduler ask the extender."""
    containers = _items(spec.get("containers"))
    if not containers or not isinstance(containers[0], Mapping):
        return
    held = [_mapping(_mapping(container).get("resources")) for container in containers]
    if any(TRAINER_RESOURCE in _mapping(r.get("limits")) for r in held):
        return
    for kind in ("limits", "requests"):
        patch.put(("spec", "containers", 0, "resources", kind, TRAINER_RESOURCE), "1")


def _put_master(patch: Patch, pod: Mapping[str, object], namespace: str, image: str) -> list[str]:
    """Adds what only admission knows: the job's master, the image of its parameter servers.

    Trainers are told where both are.
    """
    labels = _texts(_mapping(pod.get("metadata")).get("labels"))
    warnings = environment.add(patch, pod)
    master, server = sidecar.wanted(labels), servers.wanted(labels)
    if (master or server) and not image:
        return [*warnings, NO_IMAGE]
    if master:
        sidecar.add_master(patch, pod, namespace, image)
    if server:
        servers.add_image(patch, pod, image)
    return warnings


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _texts(value: object) -> dict[str, str]:
    """A map of labels or annotations; anything else in it is left out."""
    return {k: v for k, v in _mapping(value).items() if isinstance(v, str)}
