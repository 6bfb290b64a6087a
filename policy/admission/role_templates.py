"""Pod templates for a job's parameter servers and master, as annotations of its Job. Pure.

A template with containers is a program of the user's in place of EDL's; one of parameter servers
without containers says where EDL's own run. Called by `policy.admission.servers`, `kube.elastic_spec`, admission.
"""

from collections.abc import Mapping

import orjson

from policy import quantity
from policy.admission import job_spec, template_limits, template_shapes, unstructured
from policy.admission.unstructured import Json
from policy.errors import JobError, QuantityError
from policy.names import (
    ANNOTATION_MASTER_TEMPLATE,
    ANNOTATION_SERVER_TEMPLATE,
    MASTER_CONTAINER,
    SERVER_CONTAINER,
)
from policy.nearest import advice

MAX_BYTES = 32 * 1024
"""All annotations of an object together may have 256 KiB."""
_MAX_PORT = 65_535
PLACEMENT = ("affinity", "imagePullSecrets", "nodeSelector", "tolerations")
"""Fields of a template without containers: EDL's own servers have no others of a user's."""
_POD_FIELDS = (
    *PLACEMENT,
    *("containers", "dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases", "hostIPC"),
    *("hostNetwork", "initContainers", "restartPolicy", "runtimeClassName", "securityContext"),
    *("serviceAccountName", "shareProcessNamespace", "automountServiceAccountToken"),
    *("terminationGracePeriodSeconds", "volumes"),
)
_MASTER_FIELDS = ("containers", "volumes")
"""A master is a container in the pod of a trainer."""
_CONTAINER_FIELDS = (
    *("args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle"),
    *("livenessProbe", "name", "ports", "readinessProbe", "resources", "securityContext"),
    *("startupProbe", "stdin", "terminationMessagePath", "terminationMessagePolicy", "tty"),
    *("volumeDevices", "volumeMounts", "workingDir"),
)


def of_servers(annotations: Mapping[str, str]) -> Json | None:
    """The template of the parameter servers; None where the Job has none.

    Raises:
        JobError: it is invalid; the message names the field and what would be valid.
    """
    template = _parse(annotations, ANNOTATION_SERVER_TEMPLATE)
    if template is None:
        return None
    _check_known(ANNOTATION_SERVER_TEMPLATE, template, ("metadata", "spec"))
    spec = unstructured.mapping(template, "spec")
    at = f"{ANNOTATION_SERVER_TEMPLATE}: spec"
    job_spec.check_claims(spec, at)
    if "containers" not in spec:
        _check_known(at, spec, PLACEMENT, "a template without containers places EDL's own servers")
        template_shapes.check(ANNOTATION_SERVER_TEMPLATE, template)
        return template
    _check_known(at, spec, _POD_FIELDS)
    if spec.get("restartPolicy") not in (None, "Always"):
        raise JobError(f"{at}.restartPolicy: parameter servers are always restarted: leave it out")
    template_shapes.check(ANNOTATION_SERVER_TEMPLATE, template)
    _check_containers(at, spec)
    return template


def of_master(annotations: Mapping[str, str]) -> Json | None:
    """The template of the master; None where the Job has none.

    Raises:
        JobError: as `of_servers`.
    """
    template = _parse(annotations, ANNOTATION_MASTER_TEMPLATE)
    if template is None:
        return None
    spec = unstructured.mapping(template, "spec")
    at = f"{ANNOTATION_MASTER_TEMPLATE}: spec"
    job_spec.check_claims(spec, at)
    reason = "the master is a container in the pod of a trainer, whose template has the rest"
    _check_known(ANNOTATION_MASTER_TEMPLATE, template, ("spec",), reason)
    _check_known(at, spec, _MASTER_FIELDS, reason)
    if len(unstructured.objects(spec, "containers")) != 1:
        raise JobError(f"{at}.containers: write one container: {reason}")
    template_shapes.check(ANNOTATION_MASTER_TEMPLATE, template)
    _check_containers(at, spec)
    return template


def ports(template: Json) -> tuple[int, ...]:
    """The ports of the first container of a template, in its order; () where it has no containers."""
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
        template_limits.check(template)
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
            if amount < 0:  # the plan would take it for room, and the API server sees pods alone
                raise JobError(f"{at}.resources.{kind}: {resource} is negative: write 0 or more")


def _ports(container: Json) -> tuple[int, ...]:
    numbers = [port.get("containerPort") for port in unstructured.objects(container, "ports")]
    return tuple(n for n in numbers if isinstance(n, int) and 0 < n <= _MAX_PORT)
