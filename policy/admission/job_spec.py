"""Checks of an elastic Job's spec and pod templates: fields that contradict elasticity, and sizes. Pure.

Admission refuses Jobs that fail a check. `kube.elastic_spec` applies most checks to stored Jobs too, which may
have been created while the webhook was down.
"""

from collections.abc import Iterable, Mapping

import orjson

from policy.admission.views import ContainerView, JobView, PodView
from policy.cluster.failure_rules import FailureAction
from policy.errors import JobError
from policy.names import (
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    GROUP,
    JOB_ANNOTATIONS,
    MANAGER,
    MASTER_CONTAINER,
    OWN_JOB_ANNOTATIONS,
    SERVER_CONTAINER,
)
from policy.nearest import nearest

MAX_TEMPLATE_BYTES = 128 * 1024
MAX_CONSTRAINTS_BYTES = 16 * 1024
MAX_CONSTRAINTS = 128
"""Most constraints: node selector entries (for each node affinity term), expressions and tolerations."""
_MAX_NAME_CHARS = 63
_PREFIX = f"{GROUP}/"
_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
"""Prefix of resources for which kube-scheduler creates claims (k8s.io/api `resource/v1`)."""
_DISRUPTED = "DisruptionTarget"


def check_names(names: Iterable[str]) -> None:
    """Rejects unknown annotations under EDL's prefix: a misspelt annotation would have no effect.

    Raises:
        JobError: names the first unknown annotation and the nearest known one.
    """
    known = [name for name in JOB_ANNOTATIONS if name not in OWN_JOB_ANNOTATIONS]
    for name in sorted(names):
        if name.startswith(_PREFIX) and name not in JOB_ANNOTATIONS:
            match = nearest(name, known, _PREFIX)
            advice = f"write {match}" if match else "docs/annotations.md lists all"
            raise JobError(f"{name[:_MAX_NAME_CHARS]} does not exist: {advice}, or leave it out")


def check_spec(job: JobView) -> None:
    """Rejects fields of a JobSpec that contradict elasticity.

    The API server fills in `completions: 1, parallelism: 1` if a user sets neither. So that pair counts
    as "not set", and the webhook removes it.

    Raises:
        JobError: names the field and what would be valid.
    """
    if job.completion_mode == "Indexed":
        raise JobError(
            "spec.completionMode Indexed assigns a fixed part of the work to each pod; "
            "elastic trainers share theirs: leave it out"
        )
    if job.completions is not None and not job.has_default_completions:
        raise JobError(
            f"spec.completions is {job.completions}: an elastic job ends when its trainers say the "
            "work is done, not after a number of pods: leave it out"
        )
    _check_container_names("containers", job.template.containers)
    _check_container_names("initContainers", job.template.init_containers)
    check_claims(job.template, "spec.template.spec")
    if job.managed_by not in (None, MANAGER):
        raise JobError(
            f"spec.managedBy is {job.managed_by}: another controller owns the pods; "
            f"leave it out, or drop {ANNOTATION_MIN} and {ANNOTATION_MAX}"
        )


def check_stored(job: JobView) -> None:
    """Rejects fields of a stored Job that only admission could have corrected.

    Raises:
        JobError: the built-in controller manages the Job, and creates only `completions` pods.
    """
    if job.completions is not None and job.managed_by is None:
        raise JobError(
            f"spec.completions is {job.completions}: the Job was created while EDL's webhook was down, "
            "and the built-in controller creates no more pods than that"
        )


def check_placement(pod: PodView, *, has_edl_master: bool) -> None:
    """Rejects fields of a Job's template that decide where a trainer runs.

    Only admission checks these fields; stored Jobs keep them.

    Raises:
        JobError: names the field and what would be valid.
    """
    if pod.node_name:
        raise JobError(
            "spec.template.spec.nodeName: trainers would bypass kube-scheduler, and their node would "
            "reject those for which it has no capacity; write nodeSelector: kubernetes.io/hostname "
            "instead"
        )
    if pod.host_network and has_edl_master:
        raise JobError(
            "spec.template.spec.hostNetwork: EDL's master and the trainers of its job listen on "
            "fixed ports, so two of them on one node would collide: leave it out"
        )


def check_failure_rules(job: JobView) -> None:
    """Rejects rules that count disruptions as failures, because trainers are disrupted every day.

    Raises:
        JobError: names the rule and what would be valid.
    """
    for index, rule in enumerate(job.failure_rules):
        disrupted = any(condition == _DISRUPTED for condition, _ in rule.conditions)
        if disrupted and rule.action is not FailureAction.IGNORE:
            raise JobError(
                f"spec.podFailurePolicy.rules[{index}] is {rule.action} for {_DISRUPTED}: services "
                "preempt trainers, so a disruption never counts as a failure of an elastic job: remove "
                "the rule"
            )


def check_claims(pod: PodView, at: str) -> None:
    """Rejects devices from dynamic resource allocation: claims, and resources that create claims.

    Args:
        pod: The pod template.
        at: Path of the template's spec, for the message.

    Raises:
        JobError: names the field and what to do instead.
    """
    field = "resourceClaims" if pod.resource_claims else _claimed(pod)
    if field:
        raise JobError(
            f"{at}.{field}: EDL does not count the devices of claims, so it would create pods that no "
            "node can run; request an extended resource that nodes advertise, such as nvidia.com/gpu, "
            "instead"
        )


def check_size(template: Mapping[str, object], pod: PodView) -> None:
    """Rejects a pod template that is too large or has too many constraints on nodes.

    EDL keeps the template as long as the Job exists, kube-scheduler reads the constraints for each pod, and
    plans compare the constraints with all nodes.

    Args:
        template: The template as written.
        pod: The view of the template.

    Raises:
        JobError: names the field, its size, and what to do instead.
    """
    template_bytes = _size(template)
    if template_bytes > MAX_TEMPLATE_BYTES:
        raise JobError(
            f"spec.template has {template_bytes} bytes, and at most {MAX_TEMPLATE_BYTES} are allowed: "
            "put scripts and data into a ConfigMap, and mount it"
        )
    terms = [
        len(term.match_expressions) + len(term.match_fields) for term in pod.node_selector_terms
    ]
    entries = sum(terms) + max(1, len(terms)) * len(pod.node_selector) + len(pod.tolerations)
    constraints_bytes = _size(
        (pod.node_selector or None, pod.required_node_affinity or None, pod.tolerations or None)
    )
    if entries > MAX_CONSTRAINTS or constraints_bytes > MAX_CONSTRAINTS_BYTES:
        raise JobError(
            "spec.template.spec: node selector, required node affinity and tolerations have "
            f"{entries} entries of {constraints_bytes} bytes, and at most {MAX_CONSTRAINTS} of "
            f"{MAX_CONSTRAINTS_BYTES} are allowed: give the nodes a label, and select that"
        )


def _check_container_names(field: str, containers: Iterable[ContainerView]) -> None:
    """Rejects the names of the containers that EDL adds, because EDL finds its containers by name."""
    names = [container.name for container in containers]
    for name in (MASTER_CONTAINER, SERVER_CONTAINER):
        if name in names:
            raise JobError(
                f"spec.template.spec.{field}: {name} is the name of a container that EDL adds: "
                "give yours another name"
            )


def _claimed(pod: PodView) -> str:
    """Returns the first field that requests devices by their device class; "" for none."""
    for field, containers in (
        ("containers", pod.containers),
        ("initContainers", pod.init_containers),
    ):
        for index, container in enumerate(containers):
            for kind, names in (("requests", container.requests), ("limits", container.limits)):
                for name in names:
                    if name.startswith(_DEVICE_CLASS):
                        return f"{field}[{index}].resources.{kind}: {name[:_MAX_NAME_CHARS]}"
    return ""


def _size(value: object) -> int:
    """Returns the size of `value` as JSON, in bytes."""
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError as error:  # nested deeper than any pod template
        raise JobError(f"spec.template: {error}") from error
