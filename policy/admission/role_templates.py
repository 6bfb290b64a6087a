"""Pod templates for a job's parameter servers and master, in annotations of its Job. Pure.

A template with containers contains the user's program, which replaces EDL's. A parameter server template
without containers only places EDL's own servers. Called by `policy.admission.job_settings`.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from policy import quantity
from policy.admission import job_spec, unstructured
from policy.admission.unstructured import Json
from policy.admission.views import PodView
from policy.errors import JobError, QuantityError
from policy.names import (
    ANNOTATION_MASTER_TEMPLATE,
    ANNOTATION_SERVER_TEMPLATE,
    MASTER_CONTAINER,
    SERVER_CONTAINER,
)
from policy.nearest import advice

MAX_BYTES = 32 * 1024
"""Largest template; all annotations of an object together may have 256 KiB."""
_MAX_PORT = 65_535
PLACEMENT = ("affinity", "imagePullSecrets", "nodeSelector", "tolerations")
"""Fields that a template without containers may have; they are copied into the pods of EDL's servers."""
_POD_FIELDS = (
    *PLACEMENT,
    *("containers", "dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases", "hostIPC"),
    *("hostNetwork", "initContainers", "restartPolicy", "runtimeClassName", "securityContext"),
    *("serviceAccountName", "shareProcessNamespace", "automountServiceAccountToken"),
    *("terminationGracePeriodSeconds", "volumes"),
)
_MASTER_FIELDS = ("containers", "volumes")
"""Fields that a master's template may have: a master is a container in a trainer's pod."""
_CONTAINER_FIELDS = (
    *("args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle"),
    *("livenessProbe", "name", "ports", "readinessProbe", "resources", "securityContext"),
    *("startupProbe", "stdin", "terminationMessagePath", "terminationMessagePolicy", "tty"),
    *("volumeDevices", "volumeMounts", "workingDir"),
)

_TEXT: Final = "a text"
_NUMBER: Final = "a whole number"
_PORT: Final = "a number from 1 to 65535"
_TEXTS: Final = {"*": _TEXT}
_OBJECT: Final[dict[str, Any]] = {}
_RESOURCES = {"requests": _OBJECT, "limits": _OBJECT}
_EXPRESSIONS = [{"key!": _TEXT, "operator!": _TEXT, "values": [_TEXT]}]
_TERM = {"matchExpressions": _EXPRESSIONS, "matchFields": _EXPRESSIONS}
_CONTAINER = {
    "env": [{"name!": _TEXT}],
    "ports": [{"containerPort!": _PORT}],
    "resources": _RESOURCES,
    "volumeMounts": [_OBJECT],
}
_POD = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]},
            "preferredDuringSchedulingIgnoredDuringExecution": [_OBJECT],
        },
        "podAffinity": _OBJECT,
        "podAntiAffinity": _OBJECT,
    },
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "imagePullSecrets": [_OBJECT],
    "nodeSelector": _TEXTS,
    "serviceAccountName": _TEXT,
    "terminationGracePeriodSeconds": _NUMBER,
    "tolerations": [dict.fromkeys(("key", "operator", "value", "effect"), _TEXT)],
    "volumes": [{"name!": _TEXT}],
}
_TEMPLATE = {"metadata": {"labels": _TEXTS, "annotations": _TEXTS}, "spec": _POD}
"""The types of the pod template fields (core/v1) that EDL reads. EDL checks them itself, because the API server
sees such a template only when the first pod is created. A shape is a text that describes a value, a list with
the shape of its elements, or an object with the shapes of its fields: `!` marks a required field, and `*` stands
for all fields."""


def of_servers(annotations: Mapping[str, str]) -> Json | None:
    """Returns the template of the parameter servers; None if the Job has none.

    Raises:
        JobError: it is invalid; the message names the field and says what would be valid.
    """
    template = _parse(annotations, ANNOTATION_SERVER_TEMPLATE)
    if template is None:
        return None
    _check_known(ANNOTATION_SERVER_TEMPLATE, template, ("metadata", "spec"))
    spec = unstructured.mapping(template, "spec")
    at = f"{ANNOTATION_SERVER_TEMPLATE}: spec"
    job_spec.check_claims(PodView.parse(template), at)
    if "containers" not in spec:
        _check_known(at, spec, PLACEMENT, "a template without containers places EDL's own servers")
        _check_shape(f"{ANNOTATION_SERVER_TEMPLATE}: ", template, _TEMPLATE)
        return template
    _check_known(at, spec, _POD_FIELDS)
    if spec.get("restartPolicy") not in (None, "Always"):
        raise JobError(f"{at}.restartPolicy: parameter servers are always restarted: leave it out")
    _check_shape(f"{ANNOTATION_SERVER_TEMPLATE}: ", template, _TEMPLATE)
    _check_containers(at, spec)
    return template


def of_master(annotations: Mapping[str, str]) -> Json | None:
    """Returns the template of the master; None if the Job has none.

    Raises:
        JobError: it is invalid; the message names the field and says what would be valid.
    """
    template = _parse(annotations, ANNOTATION_MASTER_TEMPLATE)
    if template is None:
        return None
    spec = unstructured.mapping(template, "spec")
    at = f"{ANNOTATION_MASTER_TEMPLATE}: spec"
    job_spec.check_claims(PodView.parse(template), at)
    reason = "the master is a container in the pod of a trainer, whose template has the rest"
    _check_known(ANNOTATION_MASTER_TEMPLATE, template, ("spec",), reason)
    _check_known(at, spec, _MASTER_FIELDS, reason)
    if len(unstructured.objects(spec, "containers")) != 1:
        raise JobError(f"{at}.containers: write one container: {reason}")
    _check_shape(f"{ANNOTATION_MASTER_TEMPLATE}: ", template, _TEMPLATE)
    _check_containers(at, spec)
    return template


def ports(template: Json) -> tuple[int, ...]:
    """Returns the ports of a template's first container, in order; () if it has no containers."""
    containers = unstructured.objects(unstructured.mapping(template, "spec"), "containers")
    return _ports(containers[0]) if containers else ()


def _parse(annotations: Mapping[str, str], name: str) -> Json | None:
    text = annotations.get(name)
    if text is None:
        return None
    if len(text.encode()) > MAX_BYTES:
        raise JobError(
            f"{name} has more than {MAX_BYTES} bytes: put scripts and data into a ConfigMap, and "
            "mount it"
        )
    try:
        template = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise JobError(f"{name} is not JSON: {error}") from error
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise JobError(f'{name}: write a pod template, {{"spec": {{"containers": [...]}}}}')
    try:
        job_spec.check_size(template, PodView.parse(template))
    except JobError as error:
        raise JobError(f"{name}: {error}") from error
    return template


def _check_known(at: str, owner: Json, fields: tuple[str, ...], reason: str = "") -> None:
    for field in owner:
        if field not in fields:
            hint = f": {reason}" if reason else advice(field, fields)
            raise JobError(f"{at}.{field[:40]} is not read{hint}")


def _check_containers(at: str, spec: Json) -> None:
    containers = unstructured.objects(spec, "containers")
    if not containers:
        raise JobError(f"{at}.containers is empty: write the container of the program")
    for field in ("containers", "initContainers"):
        for index, container in enumerate(unstructured.objects(spec, field)):
            _check_container(f"{at}.{field}[{index}]", container, is_init=field != "containers")
    if not _ports(containers[0]):
        raise JobError(
            f"{at}.containers[0].ports has no containerPort: others reach the program at that port"
        )


def _check_container(at: str, container: Json, *, is_init: bool) -> None:
    _check_known(at, container, (*_CONTAINER_FIELDS, *(("restartPolicy",) if is_init else ())))
    for field in ("name", "image"):
        value = container.get(field)
        if not isinstance(value, str) or not value:
            raise JobError(f"{at}.{field} is missing: write the {field} of the container")
    if container["name"] in (MASTER_CONTAINER, SERVER_CONTAINER):
        raise JobError(f"{at}.name is that of a container that EDL adds: give yours another name")
    for kind in ("requests", "limits"):
        amounts = unstructured.mapping(unstructured.mapping(container, "resources"), kind)
        try:
            parsed = quantity.parse_all(amounts)
        except QuantityError as error:
            raise JobError(f"{at}.resources.{kind}: {error}") from error
        for resource, amount in parsed.items():
            if amount < 0:  # would count as free capacity; the API server checks only pods
                raise JobError(f"{at}.resources.{kind}: {resource} is negative: write 0 or more")


def _ports(container: Json) -> tuple[int, ...]:
    numbers = [port.get("containerPort") for port in unstructured.objects(container, "ports")]
    return tuple(n for n in numbers if isinstance(n, int) and 0 < n <= _MAX_PORT)


def _check_shape(at: str, value: object, shape: Any) -> None:
    if isinstance(shape, str):
        if not _has_type(value, shape):
            raise JobError(f"{at}: write {shape}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise JobError(f"{at}: write a list")
        for index, element in enumerate(value):
            _check_shape(f"{at}[{index}]", element, shape[0])
    else:
        if not isinstance(value, Mapping):
            raise JobError(f"{at}: write an object")
        _check_fields(at, value, shape)


def _check_fields(at: str, value: Mapping[str, object], shape: Mapping[str, Any]) -> None:
    inner = at if at.endswith(": ") else f"{at}."
    if "*" in shape:
        for name, text in value.items():
            _check_shape(f"{inner}{name[:40]}", text, shape["*"])
        return
    for key, field_shape in shape.items():
        name = key.removesuffix("!")
        if value.get(name) is not None:
            _check_shape(f"{inner}{name}", value[name], field_shape)
        elif name != key:
            raise JobError(f"{inner}{name} is missing: write {field_shape}")


def _has_type(value: object, kind: str) -> bool:
    if kind == _TEXT:
        return isinstance(value, str)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number and (kind != _PORT or 0 < value <= _MAX_PORT)  # type: ignore[operator]
