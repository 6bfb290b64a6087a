"""The specification of an elastic Job: its annotations, and the spec fields that must agree.

Called by the webhook, to reject an invalid Job at admission, and by `kube.decode`, to read a valid
one, so that both apply the same checks.
"""

import re
from collections.abc import Iterable, Mapping

from policy.admission import unstructured
from policy.errors import JobError
from policy.names import (
    ANNOTATION_DATA,
    ANNOTATION_EPOCHS,
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MASTER_STUCK,
    ANNOTATION_MASTER_TEMPLATE,
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    ANNOTATION_QUEUE,
    ANNOTATION_TOKEN_GENERATION,
    ANNOTATION_WEIGHT,
    GROUP,
    JOB_ANNOTATIONS,
    MANAGER,
    MASTER_CONTAINER,
    OWN_JOB_ANNOTATIONS,
    SERVER_CONTAINER,
)
from policy.nearest import nearest

MAX_TRAINERS = 10_000
"""A larger number of trainers in one job is taken for a typing error."""
MAX_WEIGHT = 1000
MAX_STEPS = 999_999_999
MAX_TOKEN_GENERATION = 999_999
"""The range that a master accepts."""
MAX_EPOCHS = 1_000_000
MAX_DATA_CHARS = 1024
_SECONDS = re.compile(r"\d{1,5}(\.\d{1,6})?", re.ASCII)
_SECONDS_RANGES = {
    ANNOTATION_MASTER_HEARTBEAT: (0.05, 60.0),
    ANNOTATION_MASTER_STUCK: (1.0, 86_400.0),
}
"""Annotations in seconds, with the least and the greatest value that a master accepts."""
_COUNTS = {ANNOTATION_MASTER_STEPS: MAX_STEPS, ANNOTATION_EPOCHS: MAX_EPOCHS}
"""Annotations with a whole number from 1, with the greatest value."""
MASTER_SETTINGS = (*_COUNTS, *_SECONDS_RANGES, ANNOTATION_DATA)
"""Annotations with settings of EDL's master, and of the data that it leases."""
_MAX_NAME_CHARS = 63
_PREFIX = f"{GROUP}/"
_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
"""Of resource names for which kube-scheduler makes claims (k8s.io/api `resource/v1`)."""


def is_elastic(annotations: Mapping[str, str]) -> bool:
    """Whether a Job is meant to be elastic: it has at least one of the two bounds."""
    return ANNOTATION_MIN in annotations or ANNOTATION_MAX in annotations


def check_names(names: Iterable[str]) -> None:
    """Rejects annotations of EDL that do not exist: a misspelt one would be ignored.

    Raises:
        JobError: the first such name, with the nearest one that exists.
    """
    known = [name for name in JOB_ANNOTATIONS if name not in OWN_JOB_ANNOTATIONS]
    for name in sorted(names):
        if name.startswith(_PREFIX) and name not in JOB_ANNOTATIONS:
            match = nearest(name, known, _PREFIX)
            advice = f"write {match}" if match else "docs/annotations.md lists all"
            raise JobError(f"{name[:_MAX_NAME_CHARS]} does not exist: {advice}, or leave it out")


def bounds(annotations: Mapping[str, str]) -> tuple[int, int]:
    """(min, max) trainers, 1 <= min <= max <= MAX_TRAINERS.

    Raises:
        JobError: one is missing, no whole number, out of range, or min > max.
    """
    low = number(annotations, ANNOTATION_MIN, MAX_TRAINERS)
    high = number(annotations, ANNOTATION_MAX, MAX_TRAINERS)
    if low > high:
        raise JobError(
            f"{ANNOTATION_MIN} is {low} and {ANNOTATION_MAX} is {high}: min must not exceed max"
        )
    return low, high


def weight(annotations: Mapping[str, str]) -> int:
    """The job's weight in sharing, 1 to MAX_WEIGHT; 1 where none is given.

    Raises:
        JobError: no whole number in the range.
    """
    if ANNOTATION_WEIGHT not in annotations:
        return 1
    return number(annotations, ANNOTATION_WEIGHT, MAX_WEIGHT)


def queue(annotations: Mapping[str, str]) -> str:
    """The job's queue; "" where none is given.

    Raises:
        JobError: no text, or longer than a label value may be.
    """
    name: object = annotations.get(ANNOTATION_QUEUE, "")
    if not isinstance(name, str) or len(name) > _MAX_NAME_CHARS:
        raise JobError(f"{ANNOTATION_QUEUE} is not text of at most {_MAX_NAME_CHARS} characters")
    return name


def master(annotations: Mapping[str, str]) -> bool:
    """Whether the job requests a master; False where the annotation is missing.

    Raises:
        JobError: neither "true" nor "false".
    """
    text = annotations.get(ANNOTATION_MASTER, "false")
    if text not in ("true", "false"):
        raise JobError(
            f'{ANNOTATION_MASTER} is {text[:40]!r}: write "true" for a master, or leave it out'
        )
    return text == "true"


def master_settings(annotations: Mapping[str, str]) -> dict[str, str]:
    """The Job's settings of its master, as annotations for the pod that hosts it.

    Raises:
        JobError: a value that no master accepts, or settings without a master.
    """
    settings = {
        name: str(number(annotations, name, most))
        for name, most in _COUNTS.items()
        if name in annotations
    }
    for name, (min_s, max_s) in _SECONDS_RANGES.items():
        text = annotations.get(name)
        if text is None:
            continue
        usable = _SECONDS.fullmatch(text)
        if not (usable and min_s <= float(text) <= max_s):
            raise JobError(f"{name} is {text[:40]!r}: write seconds from {min_s:g} to {max_s:g}")
        settings[name] = text
    if ANNOTATION_DATA in annotations:
        settings[ANNOTATION_DATA] = _data(annotations[ANNOTATION_DATA])
    for name in settings:
        need_master(annotations, name)
    return settings


def _data(text: str) -> str:
    """Where the data is.

    Raises:
        JobError: it is empty, too long, or has characters that no path has.
    """
    if not text.strip() or len(text) > MAX_DATA_CHARS or not text.isprintable():
        raise JobError(
            f"{ANNOTATION_DATA} is {text[:40]!r}: write a path of the trainers, such as /data/train, "
            f"with at most {MAX_DATA_CHARS} characters in one line"
        )
    return text


def token_generation(annotations: Mapping[str, str]) -> int:
    """The generation of the job's token, 1 to MAX_TOKEN_GENERATION; 1 where none is given.

    Raises:
        JobError: no whole number in the range, or the job has no master.
    """
    if ANNOTATION_TOKEN_GENERATION not in annotations:
        return 1
    need_master(annotations, ANNOTATION_TOKEN_GENERATION)
    return number(annotations, ANNOTATION_TOKEN_GENERATION, MAX_TOKEN_GENERATION)


def need_master(annotations: Mapping[str, str], name: str) -> None:
    """Rejects an annotation that has no effect without a master.

    Raises:
        JobError: the job has none.
    """
    if not master(annotations):
        raise JobError(
            f'{name} needs a master: write {ANNOTATION_MASTER}: "true" as well, or leave it out'
        )


def check_spec(spec: Mapping[str, object]) -> None:
    """Rejects the fields of a batch/v1 JobSpec that contradict elasticity.

    The API server fills in `completions: 1, parallelism: 1` where a user gives neither, so that
    pair is taken as "not given" (the webhook removes it).

    Raises:
        JobError: the field, and what would be right.
    """
    if spec.get("completionMode") == "Indexed":
        raise JobError(
            "spec.completionMode Indexed assigns a fixed part of the work to each pod; "
            "elastic trainers share theirs: leave it out"
        )
    completions = spec.get("completions")
    if completions is not None and not defaulted_completions(spec):
        raise JobError(
            f"spec.completions is {completions}: an elastic job ends when its trainers say the "
            "work is done, not after a number of pods: leave it out"
        )
    pod_spec = unstructured.mapping(unstructured.mapping(spec, "template"), "spec")
    _check_containers(pod_spec)
    check_claims(pod_spec, "spec.template.spec")
    manager = spec.get("managedBy")
    if manager is not None and manager != MANAGER:
        raise JobError(
            f"spec.managedBy is {manager}: another controller owns the pods; "
            f"leave it out, or drop {ANNOTATION_MIN} and {ANNOTATION_MAX}"
        )


def _check_containers(pod_spec: Mapping[str, object]) -> None:
    """Rejects containers with the name of one that EDL adds: pods are recognized by it.

    Raises:
        JobError: the name.
    """
    for field in ("containers", "initContainers"):
        for name in (MASTER_CONTAINER, SERVER_CONTAINER):
            if unstructured.has_name(unstructured.objects(pod_spec, field), name):
                raise JobError(
                    f"spec.template.spec.{field}: {name} is the name of a container that EDL adds: "
                    "give yours another name"
                )


def check_claims(pod_spec: Mapping[str, object], at: str) -> None:
    """Rejects claims of devices (dynamic resource allocation), by themselves or as a resource's name.

    Raises:
        JobError: the field, whose place in the object is `at`, and what to do instead.
    """
    field = "resourceClaims" if pod_spec.get("resourceClaims") else _claimed(pod_spec)
    if field:
        raise JobError(
            f"{at}.{field}: EDL does not count the devices of claims, so it would create pods that no "
            "node can run; request an extended resource that nodes advertise, such as nvidia.com/gpu, "
            "instead"
        )


def _claimed(pod_spec: Mapping[str, object]) -> str:
    """The first container's request for devices of a class; "" for none."""
    for field in ("containers", "initContainers"):
        for index, container in enumerate(unstructured.objects(pod_spec, field)):
            resources = unstructured.mapping(container, "resources")
            for kind in ("requests", "limits"):
                for name in unstructured.mapping(resources, kind):
                    if name.startswith(_DEVICE_CLASS):
                        return f"{field}[{index}].resources.{kind}: {name[:_MAX_NAME_CHARS]}"
    return ""


def check_template(spec: Mapping[str, object], annotations: Mapping[str, str]) -> None:
    """Rejects fields of the pod template with which EDL cannot say where a trainer fits.

    Checked at admission alone: stored Jobs keep what they have.

    Raises:
        JobError: the field, and what would be right.
    """
    pod_spec = unstructured.mapping(unstructured.mapping(spec, "template"), "spec")
    if pod_spec.get("nodeName"):
        raise JobError(
            "spec.template.spec.nodeName: trainers would bypass kube-scheduler, and their node would "
            "reject those for which it has no capacity; write nodeSelector: kubernetes.io/hostname "
            "instead"
        )
    has_edl_master = master(annotations) and ANNOTATION_MASTER_TEMPLATE not in annotations
    if pod_spec.get("hostNetwork") is True and has_edl_master:
        raise JobError(
            "spec.template.spec.hostNetwork: EDL's master and the trainers of its job listen on "
            "fixed ports, so two of them on one node would collide: leave it out"
        )


def check_stored(spec: Mapping[str, object]) -> None:
    """Rejects fields of a stored Job that only admission could have corrected.

    Raises:
        JobError: the built-in controller manages it, and creates only `completions` pods.
    """
    completions = spec.get("completions")
    if completions is not None and spec.get("managedBy") is None:
        raise JobError(
            f"spec.completions is {completions}: the Job was created while EDL's webhook was down, "
            "and the built-in controller creates no more pods than that"
        )


def defaulted_completions(spec: Mapping[str, object]) -> bool:
    """Whether completions and parallelism are the pair that the API server fills in."""
    return spec.get("completions") == 1 and spec.get("parallelism") in (None, 1)


def number(annotations: Mapping[str, str], name: str, largest: int) -> int:
    """The whole number from 1 to `largest` that an annotation holds.

    Raises:
        JobError: it is missing, or holds anything else.
    """
    text = annotations.get(name)
    if text is None:
        raise JobError(
            f"{name} is missing: an elastic job needs both min and max, such as 2 and 60"
        )
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal()):
        raise JobError(f"{name} is {text[:40]!r}: write a whole number from 1 to {largest}")
    if len(digits) > 9 or not 1 <= int(digits) <= largest:  # noqa: PLR2004 - int() of any length is slow
        raise JobError(f"{name} is {text[:40]}: write a whole number from 1 to {largest}")
    return int(digits)
