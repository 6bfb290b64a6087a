"""A job's parameter servers: what it asks for, what they are called, and what admission adds to them.

The reconciler makes their pods whole but for the image, which admission knows: the API server
takes no pod without one, so none can start in a cluster whose webhook is away. Pure. Who calls:
`policy.mutation`, `kube.decode`, `policy.rules.servers`, and `reconciler`.
"""

import re
from collections.abc import Mapping

from policy import elastic, quantity, reading
from policy.errors import JobError, QuantityError
from policy.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVER_MEMORY,
    ANNOTATION_SERVERS,
    LABEL_JOB,
    LABEL_SERVER,
    SERVER_CONTAINER,
    object_name,
)
from policy.patch import Patch
from policy.snapshot import Servers

MOST = 64
"""More than this in one job is a slip of the pen: each trainer talks to all of them."""
LEAST_MEMORY = "128Mi"
"""What an empty server takes; "512m" is half a byte."""
_DEFAULT_CPU = "500m"
_DEFAULT_MEMORY = "1Gi"
_DETAILS = (ANNOTATION_SERVER_CPU, ANNOTATION_SERVER_MEMORY, ANNOTATION_CLAIM)
ANNOTATIONS = (ANNOTATION_SERVERS, *_DETAILS)
"""All that a Job says about them."""
_LONGEST = 253
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""RFC 1123: what a PersistentVolumeClaim may be called."""


def asked(annotations: Mapping[str, str]) -> Servers | None:
    """The parameter servers that a Job asks for; None for none.

    Raises:
        JobError: the annotation that is wrong, and what would be right.
    """
    if ANNOTATION_SERVERS not in annotations:
        for name in _DETAILS:
            if name in annotations:
                raise JobError(
                    f"{name} says something about parameter servers, and the Job asks for none: "
                    f'write {ANNOTATION_SERVERS}: "2" or the like, or leave it out'
                )
        return None
    elastic.need_master(annotations, ANNOTATION_SERVERS)
    requests = {
        "cpu": _amount(annotations, ANNOTATION_SERVER_CPU, "cpu", _DEFAULT_CPU, "1m"),
        "memory": _amount(
            annotations, ANNOTATION_SERVER_MEMORY, "memory", _DEFAULT_MEMORY, LEAST_MEMORY
        ),
        "pods": 1,
    }
    count = elastic.number(annotations, ANNOTATION_SERVERS, MOST)
    return Servers(count, requests, _claim(annotations))


def _amount(
    annotations: Mapping[str, str], name: str, resource: str, default: str, least: str
) -> int:
    text = annotations.get(name, default)
    try:
        amount = quantity.parse(resource, text)
    except QuantityError as error:
        raise JobError(f"{name}: {error}") from error
    if amount < quantity.parse(resource, least):
        raise JobError(f"{name} is {text[:40]!r}: a parameter server needs at least {least}")
    return amount


def _claim(annotations: Mapping[str, str]) -> str:
    name = annotations.get(ANNOTATION_CLAIM)
    if name is None:
        return ""
    if len(name) > _LONGEST or not _SUBDOMAIN.fullmatch(name):
        raise JobError(
            f"{ANNOTATION_CLAIM} is {name[:40]!r}: write the name of a PersistentVolumeClaim in "
            "the Job's namespace"
        )
    return name


def name_of(job: str, number: int) -> str:
    """What a server's pod and Service are called; a pod that is lost comes back under it."""
    return object_name(job, f"-ps-{number}")


def wanted(labels: Mapping[str, str]) -> bool:
    """Whether a pod is a parameter server of EDL's making."""
    return bool(labels.get(LABEL_SERVER)) and bool(labels.get(LABEL_JOB))


def add_image(patch: Patch, pod: Mapping[str, object], image: str) -> None:
    """Says what the server's container runs; nothing where that is said already."""
    for place, container in enumerate(reading.entries(reading.spec(pod), "containers")):
        if container.get("name") == SERVER_CONTAINER and not container.get("image"):
            patch.put(("spec", "containers", place, "image"), image)
