"""A job's parameter servers: the request in its annotations, their names, and their admission.

The reconciler creates their pods without an image, which admission adds: the API server accepts no
pod without one, so none can start in a cluster whose webhook is down. Pure. Called by
`policy.admission.mutation`, `kube.decode`, `policy.planning.rules.servers`, and `reconciler`.
"""

import re
from collections.abc import Mapping

import orjson

from policy import quantity
from policy.admission import job_spec, role_templates
from policy.cluster.snapshot import ServerSpec
from policy.errors import JobError, QuantityError
from policy.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVER_MEMORY,
    ANNOTATION_SERVER_TEMPLATE,
    ANNOTATION_SERVERS,
    SERVER_INFIX,
    object_name,
)

MAX_SERVERS = 64
"""A larger number in one job is taken for a typing error: each trainer connects to all of them."""
MIN_MEMORY = "128Mi"
"""Memory of an empty server; it also catches "512m", which is half a byte."""
_DEFAULT_CPU = "500m"
_DEFAULT_MEMORY = "1Gi"
_OF_EDL = (ANNOTATION_SERVER_CPU, ANNOTATION_SERVER_MEMORY, ANNOTATION_CLAIM)
"""Annotations about EDL's own program."""
_DETAILS = (*_OF_EDL, ANNOTATION_SERVER_TEMPLATE)
ANNOTATIONS = (ANNOTATION_SERVERS, *_DETAILS)
"""All annotations of a Job about its parameter servers."""
_MAX_CLAIM_CHARS = 253
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""RFC 1123 subdomain: the valid names of a PersistentVolumeClaim."""


def requested(annotations: Mapping[str, str]) -> ServerSpec | None:
    """The parameter servers that a Job requests; None where it requests none.

    Those of a program of the user's have no requests yet: they are those of its template.

    Raises:
        JobError: an annotation is invalid; the message names it and what would be valid.
    """
    if ANNOTATION_SERVERS not in annotations:
        for name in _DETAILS:
            if name in annotations:
                raise JobError(
                    f"{name} applies to parameter servers, and the Job requests none: "
                    f'write {ANNOTATION_SERVERS}: "2" or the like, or leave it out'
                )
        return None
    count = job_spec.number(annotations, ANNOTATION_SERVERS, MAX_SERVERS)
    template = role_templates.of_servers(annotations)
    text = b"" if template is None else orjson.dumps(template)
    if template is not None and (ports := role_templates.ports(template)):
        for name in _OF_EDL:
            if name in annotations:
                raise JobError(
                    f"{name} applies to EDL's own parameter servers, and "
                    f"{ANNOTATION_SERVER_TEMPLATE} has your own program: write it there"
                )
        return ServerSpec(count, {"pods": 1}, template_json=text, ports=ports)
    job_spec.need_master(annotations, ANNOTATION_SERVERS)
    requests = {
        "cpu": _amount(annotations, ANNOTATION_SERVER_CPU, "cpu", _DEFAULT_CPU, "1m"),
        "memory": _amount(
            annotations, ANNOTATION_SERVER_MEMORY, "memory", _DEFAULT_MEMORY, MIN_MEMORY
        ),
        "pods": 1,
    }
    return ServerSpec(count, requests, _claim(annotations), template_json=text)


def _amount(
    annotations: Mapping[str, str], name: str, resource: str, default: str, minimum: str
) -> int:
    text = annotations.get(name, default)
    try:
        amount = quantity.parse(resource, text)
    except QuantityError as error:
        raise JobError(f"{name}: {error}") from error
    if amount < quantity.parse(resource, minimum):
        raise JobError(f"{name} is {text[:40]!r}: a parameter server needs at least {minimum}")
    return amount


def _claim(annotations: Mapping[str, str]) -> str:
    name = annotations.get(ANNOTATION_CLAIM)
    if name is None:
        return ""
    if len(name) > _MAX_CLAIM_CHARS or not _SUBDOMAIN.fullmatch(name):
        raise JobError(
            f"{ANNOTATION_CLAIM} is {name[:40]!r}: write the name of a PersistentVolumeClaim in "
            "the Job's namespace"
        )
    return name


def name_of(job: str, number: int) -> str:
    """The name of a server's pod and Service; the replacement of a lost pod has the same name."""
    return object_name(job, f"{SERVER_INFIX}{number}")
