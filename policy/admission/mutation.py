"""Admission mutations: training pods get low priority and become preemptible; EDL manages elastic Jobs.

Called by `webhook.review`. Pure: takes the object, the policy and the live priority classes, and
returns JSON Patch operations with warnings. An object that is patched already needs no operations.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policy.admission import job_settings, job_spec, patch, sidecar
from policy.admission.job_settings import JobSettings
from policy.admission.patch import Change, Drop, Operation, Put
from policy.admission.views import JobView, PodView
from policy.document.model import Policy
from policy.names import (
    ANNOTATION_MASTER,
    ANNOTATION_NODE_REQUEST,
    ANNOTATION_SCHEDULER,
    CLASS_LOW_SHARE,
    DRAIN_BLOCKS,
    GROUP,
    LABEL_JOB,
    LABEL_PREEMPTIBLE,
    LABEL_ROLE,
    LABEL_TIER,
    LABELS,
    MANAGER,
    POD_ANNOTATIONS,
    TRAINER_RESOURCE,
    Role,
    Tier,
)
from policy.nearest import advice
from policy.priority_classes import CLASS_OF, PriorityClassValues
from policy.scheduling import UNMARKED, Scheduling

_MAX_LABEL_CHARS = 63
_MAX_NAME_WARNINGS = 5
"""Most warnings about unknown names: `kubectl` prints each, and the API server passes on 4096 characters."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """The changes to an object, and warnings for its author.

    Attributes:
        operations: JSON Patch, empty if nothing changes.
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
    document: Mapping[str, object],
    namespace: str,
    policy: Policy,
    classes: Mapping[str, PriorityClassValues],
    master_image: str = "",
    *,
    scheduling: Scheduling = UNMARKED,
) -> Mutation:
    """Makes a training pod preemptible: labels, priority, grace period and scheduler.

    A pod is training if it has the job label, or if a selector in the policy matches it. Selectors match
    other operators' pods, which are always surplus. Pods in protected namespaces are never training.

    Args:
        document: core/v1 Pod as admission receives it, with defaults and priority filled in.
        namespace: Namespace of the request; the object's own namespace may be empty.
        policy: The active policy.
        classes: Live PriorityClasses by name.
        master_image: Image of masters and parameter servers; "" if none is configured.
        scheduling: How training pods ask for a scheduler now.
    """
    if policy.protects(namespace):
        return UNTOUCHED
    pod = PodView.parse(document)
    warnings: list[str] = []
    if LABEL_JOB in pod.labels:
        role = _role(pod.labels, warnings)
        tier = _tier(role, pod.labels)
    else:
        selected = policy.training_role(namespace, pod.labels)
        if selected is None:
            return UNTOUCHED
        role, tier = selected, Tier.SURPLUS
    if _raises(pod, classes.get(CLASS_OF[tier])):
        tier = Tier.SURPLUS
        warnings.append(_RAISES_NOTHING)
    changes: list[Change] = [
        Put(("metadata", "labels", LABEL_ROLE), role.value),
        Put(("metadata", "labels", LABEL_TIER), tier.value),
        # EDL evicts only trainers. kube-scheduler preempts support pods, after all other training pods.
        Put(("metadata", "labels", LABEL_PREEMPTIBLE), "false" if tier is Tier.SUPPORT else "true"),
        *_priority(pod, tier, classes, warnings),
    ]
    if pod.grace_s > policy.tiers.grace_seconds:  # a reclaim waits that long
        path = ("spec", "terminationGracePeriodSeconds")
        changes.append(Put(path, policy.tiers.grace_seconds))
    awaits_node = ANNOTATION_NODE_REQUEST in pod.annotations
    changes += _scheduler(pod, scheduling.unmarked if awaits_node else scheduling)
    if tier is Tier.SURPLUS:  # it must not keep an autoscaler from removing its node
        blocks = [name for name in DRAIN_BLOCKS if name in pod.annotations]
        changes += [Drop(("metadata", "annotations", name)) for name in blocks]
    variables, kept = sidecar.add_variables(pod, policy.tiers.grace_seconds)
    changes += variables
    warnings += kept
    changes += _master_and_server(pod, namespace, master_image, warnings)
    warnings += _unknown_names(pod)
    return Mutation(patch.operations(document, changes), role, tier, tuple(warnings))


def job_patch(document: Mapping[str, object], namespace: str, policy: Policy) -> Mutation:
    """Hands an elastic batch/v1 Job to the reconciler; only at creation, because managedBy is immutable.

    `parallelism` becomes min, which `kubectl get jobs` then shows. Jobs that are not elastic, and
    all Jobs in protected namespaces, stay unchanged.

    Raises:
        JobError: the annotations or the spec contradict elasticity; the message names the field.
    """
    job = JobView.parse(document)
    if not job_settings.is_elastic(job.annotations):
        return UNTOUCHED
    if policy.protects(namespace):
        warning = f"the policy protects namespace {namespace}, so EDL does not manage this Job"
        return Mutation(warnings=(warning,))
    settings = check_job(job)
    changes: list[Change] = []
    if job.managed_by is None:
        changes.append(Put(("spec", "managedBy"), MANAGER))
    if job.has_default_completions:
        changes.append(Drop(("spec", "completions")))
    changes.append(Put(("spec", "parallelism"), settings.min_trainers))
    labels = ("spec", "template", "metadata", "labels")
    if 0 < len(job.name) <= _MAX_LABEL_CHARS:
        changes.append(Put((*labels, LABEL_JOB), job.name))
    changes.append(Put((*labels, LABEL_ROLE), Role.TRAINER.value))
    warnings = tuple(_unknown_names(job.template))
    return Mutation(patch.operations(document, changes), Role.TRAINER, warnings=warnings)


def check_job(job: JobView) -> JobSettings:
    """Checks an elastic Job at its creation; returns its settings.

    Raises:
        JobError: the first error; the message names the field and what would be valid.
    """
    settings = job_settings.parse(job.annotations)
    job_spec.check_spec(job)
    job_spec.check_size(job.template_document, job.template)
    job_spec.check_placement(job.template, has_edl_master=settings.edl_master)
    job_spec.check_failure_rules(job)
    return settings


def _role(labels: Mapping[str, str], warnings: list[str]) -> Role:
    """Returns the role in the label; trainer if the label is missing or invalid."""
    named = labels.get(LABEL_ROLE, Role.TRAINER.value)
    try:
        return Role(named)
    except ValueError:
        warnings.append(
            f"{LABEL_ROLE} is {named[:40]!r}, treated as trainer: write master, pserver or trainer"
        )
        return Role.TRAINER


def _tier(role: Role, labels: Mapping[str, str]) -> Tier:
    """Returns surplus for a trainer unless it is labelled guaranteed, and support for other roles.

    A user who sets the guaranteed label gains little, because that class too is below every service.
    """
    if role is not Role.TRAINER:
        return Tier.SUPPORT
    return Tier.GUARANTEED if labels.get(LABEL_TIER) == Tier.GUARANTEED.value else Tier.SURPLUS


def _raises(pod: PodView, priority_class: PriorityClassValues | None) -> bool:
    """Returns whether the class has a higher priority than the pod, or preempts although the pod may not.

    Users may write any labels on their pods, but may be allowed only a class of low priority. The trainers
    and servers that EDL creates name their class themselves.
    """
    if priority_class is None:
        return False
    is_higher = pod.priority is not None and pod.priority < priority_class.value
    never = pod.preemption_policy == "Never"
    return is_higher or (never and priority_class.preemption_policy != "Never")


def _priority(
    pod: PodView, tier: Tier, classes: Mapping[str, PriorityClassValues], warnings: list[str]
) -> list[Change]:
    """Sets class, value and preemptionPolicy together.

    The Priority plugin has already filled in value and preemptionPolicy, and runs again after EDL. It
    rejects the pod if they differ from the class. A pod whose priority is below its tier's class keeps its
    priority.
    """
    named = pod.priority_class
    low_share = tier is Tier.SURPLUS and named == CLASS_LOW_SHARE
    name = CLASS_LOW_SHARE if low_share else CLASS_OF[tier]
    priority_class = classes.get(name)
    if priority_class is None:
        warnings.append(f"PriorityClass {name} does not exist (yet): the pod keeps its priority")
        return []
    if _raises(pod, priority_class):
        return []
    is_default = named in classes and classes[named].is_default
    if named not in ("", name) and not is_default:
        warnings.append(
            f"changed priorityClassName from {named[:40]} to {name}, so that services can preempt training"
        )
    return [
        Put(("spec", "priorityClassName"), name),
        Put(("spec", "priority"), priority_class.value),
        Put(("spec", "preemptionPolicy"), priority_class.preemption_policy),
    ]


def _scheduler(pod: PodView, scheduling: Scheduling) -> list[Change]:
    """Sets the scheduler, and requests the resource for which the scheduler calls the extender."""
    changes: list[Change] = []
    scheduler = scheduling.scheduler_of(pod.scheduler)
    if scheduler != pod.scheduler:
        changes += [
            Put(("spec", "schedulerName"), scheduler),
            Put(("metadata", "annotations", ANNOTATION_SCHEDULER), scheduler),
        ]
    requested = any(TRAINER_RESOURCE in container.limits for container in pod.containers)
    if requested or not (pod.containers and pod.containers[0].name):
        return changes
    if scheduling.marks(pod.scheduler):
        resources = ("spec", "containers", 0, "resources")
        changes += [
            Put((*resources, kind, TRAINER_RESOURCE), "1") for kind in ("limits", "requests")
        ]
    return changes


def _master_and_server(
    pod: PodView, namespace: str, image: str, warnings: list[str]
) -> list[Change]:
    """Adds the parts with EDL's image: the master's sidecar, and the image of a parameter server.

    The API server rejects a pod without an image, so no server starts while the webhook is down.
    """
    needs_master = pod.hosts_master and not pod.has_master
    server = pod.server_without_image
    if not image and (needs_master or server >= 0):
        warnings.append(NO_IMAGE)
        return []
    changes = sidecar.add_master(pod, namespace, image) if needs_master else []
    if server >= 0:
        changes.append(Put(("spec", "containers", server, "image"), image))
    return changes


def _unknown_names(pod: PodView) -> list[str]:
    """Warns about unknown names under EDL's prefix in a pod or a Job's pod template.

    Unknown annotations of a Job itself are refused (`job_spec.check_names`).
    """
    labels = _unknown("label", pod.labels, LABELS)
    return [*labels, *_unknown("annotation", pod.annotations, POD_ANNOTATIONS)][:_MAX_NAME_WARNINGS]


def _unknown(kind: str, names: Iterable[str], known: tuple[str, ...]) -> list[str]:
    prefix = f"{GROUP}/"
    unknown = sorted(name for name in names if name.startswith(prefix) and name not in known)
    return [
        f"{kind} {name[:_MAX_LABEL_CHARS]} does not exist{advice(name, known, prefix)}"
        for name in unknown[:_MAX_NAME_WARNINGS]
    ]
