"""What a Job's annotations say about its sizes, processes, environment and its master's program. Pure.

Called by `kube.elastic_spec` and by admission, as `policy.admission.job_spec`.
"""

from collections.abc import Mapping

import orjson

from policy import quantity
from policy.admission import frameworks, job_spec, role_templates, servers
from policy.cluster.snapshot import Resources
from policy.errors import JobError, QuantityError
from policy.names import (
    ANNOTATION_ENVIRONMENT,
    ANNOTATION_MASTER_CPU,
    ANNOTATION_MASTER_MEMORY,
    ANNOTATION_MASTER_TEMPLATE,
    ANNOTATION_PROCESSES,
    ANNOTATION_SERVERS,
    ANNOTATION_SIZES,
    ANNOTATION_TOKEN_GENERATION,
)
from policy.nearest import advice

MAX_SIZES = 100
MAX_PROCESSES = 128
"""A larger number of processes in one pod is taken for a typing error."""
IMMUTABLE = (
    ANNOTATION_MASTER_CPU,
    ANNOTATION_MASTER_MEMORY,
    ANNOTATION_MASTER_TEMPLATE,
    ANNOTATION_PROCESSES,
    ANNOTATION_ENVIRONMENT,
)
"""Annotations that existing pods would not follow."""
_LEAST = {ANNOTATION_MASTER_CPU: ("cpu", "1m"), ANNOTATION_MASTER_MEMORY: ("memory", "64Mi")}


def check(annotations: Mapping[str, str]) -> None:
    """Rejects invalid values of these annotations, and what contradicts another annotation.

    Raises:
        JobError: the first error; the message names the annotation and what would be valid.
    """
    sizes(annotations)
    processes(annotations)
    environment(annotations)
    master_requests(annotations)
    master_template(annotations)


def sizes(annotations: Mapping[str, str]) -> tuple[int, ...]:
    """The allowed numbers of trainers, ascending; () where any number is allowed.

    Raises:
        JobError: it is not a list of whole numbers from 1 to `job_spec.MAX_TRAINERS`.
    """
    if ANNOTATION_SIZES not in annotations:
        return ()
    entries = annotations[ANNOTATION_SIZES].split(",", MAX_SIZES)
    if len(entries) > MAX_SIZES:
        raise JobError(f"{ANNOTATION_SIZES} has more than {MAX_SIZES} numbers")
    values = {
        job_spec.number({ANNOTATION_SIZES: entry}, ANNOTATION_SIZES, job_spec.MAX_TRAINERS)
        for entry in entries
    }
    return tuple(sorted(values))


def processes(annotations: Mapping[str, str]) -> int:
    """How many processes a trainer starts, 1 to MAX_PROCESSES; 1 where none is given.

    Raises:
        JobError: no whole number in the range.
    """
    if ANNOTATION_PROCESSES not in annotations:
        return 1
    return job_spec.number(annotations, ANNOTATION_PROCESSES, MAX_PROCESSES)


def environment(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The frameworks whose variables pods get, in order.

    Raises:
        JobError: one does not exist, or torch has no master, at which its processes meet.
    """
    if ANNOTATION_ENVIRONMENT not in annotations:
        return ()
    names = tuple(name.strip() for name in annotations[ANNOTATION_ENVIRONMENT][:200].split(","))
    for name in names:
        if name not in frameworks.NAMES:
            raise JobError(
                f"{ANNOTATION_ENVIRONMENT} is {name[:40]!r}{advice(name, frameworks.NAMES)}: write "
                f"{' or '.join(frameworks.NAMES)}, or both with a comma"
            )
    if frameworks.TORCH in names:
        job_spec.need_master(annotations, f"{ANNOTATION_ENVIRONMENT}: {frameworks.TORCH}")
    return names


def master_requests(annotations: Mapping[str, str]) -> Resources:
    """The requests of EDL's master as far as they are given.

    Raises:
        JobError: no quantity, or less than a master needs.
    """
    requests = {}
    for name, (resource, least) in _LEAST.items():
        if name not in annotations:
            continue
        try:
            requests[resource] = quantity.parse(resource, annotations[name])
        except QuantityError as error:
            raise JobError(f"{name}: {error}") from error
        if requests[resource] < quantity.parse(resource, least):
            raise JobError(f"{name} is {annotations[name][:40]!r}: a master needs at least {least}")
        job_spec.need_master(annotations, name)
    return requests


def master_template(annotations: Mapping[str, str]) -> bytes:
    """The pod template of a program in place of EDL's master, as JSON; "" where there is none.

    Raises:
        JobError: it is invalid, or the Job asks for what only EDL's master does.
    """
    template = role_templates.of_master(annotations)
    if template is None:
        return b""
    job_spec.need_master(annotations, ANNOTATION_MASTER_TEMPLATE)
    settings = (*job_spec.MASTER_SETTINGS, *_LEAST, ANNOTATION_TOKEN_GENERATION)
    for name in settings:
        if name in annotations:
            raise JobError(
                f"{name} applies to EDL's own master, and {ANNOTATION_MASTER_TEMPLATE} has a program "
                "of yours: leave one of them out"
            )
    spec = servers.requested(annotations)
    if spec is not None and not spec.ports:
        raise JobError(
            f"{ANNOTATION_SERVERS}: EDL's parameter servers need EDL's master, and "
            f"{ANNOTATION_MASTER_TEMPLATE} has your own program: remove one of them"
        )
    return orjson.dumps(template)
