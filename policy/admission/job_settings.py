"""The settings of an elastic Job: its annotations, parsed and checked. Pure.

Admission refuses a Job whose settings are invalid, and `kube.elastic_spec` reads stored Jobs with the same
functions, so that both apply the same rules.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from policy import quantity
from policy.admission import frameworks, role_templates
from policy.cluster.snapshot import Resources, ServerSpec
from policy.errors import JobError, QuantityError
from policy.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_DATA,
    ANNOTATION_ENVIRONMENT,
    ANNOTATION_EPOCHS,
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_CPU,
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_MEMORY,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MASTER_STUCK,
    ANNOTATION_MASTER_TEMPLATE,
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    ANNOTATION_PROCESSES,
    ANNOTATION_QUEUE,
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVER_MEMORY,
    ANNOTATION_SERVER_TEMPLATE,
    ANNOTATION_SERVERS,
    ANNOTATION_SIZES,
    ANNOTATION_TOKEN_GENERATION,
    ANNOTATION_WEIGHT,
)
from policy.nearest import advice

MAX_TRAINERS = 10_000
"""Most trainers in one job; a larger number is taken for a typing error."""
MAX_WEIGHT = 1000
MAX_STEPS = 999_999_999
MAX_TOKEN_GENERATION = 999_999
"""The largest token generation that a master accepts."""
MAX_EPOCHS = 1_000_000
MAX_DATA_CHARS = 1024
MAX_SIZES = 100
MAX_PROCESSES = 128
"""Most processes in one pod; a larger number is taken for a typing error."""
MAX_SERVERS = 64
"""Most servers in one job, as each trainer connects to all; a larger number is taken for a typing error."""
MIN_SERVER_MEMORY = "128Mi"
"""Memory of an empty server; this minimum also rejects "512m", which is half a byte."""
_MAX_QUEUE_CHARS = 63
_SERVER_CPU = "500m"
_SERVER_MEMORY = "1Gi"
_SECONDS = re.compile(r"\d{1,5}(\.\d{1,6})?", re.ASCII)
_SECONDS_RANGES = {
    ANNOTATION_MASTER_HEARTBEAT: (0.05, 60.0),
    ANNOTATION_MASTER_STUCK: (1.0, 86_400.0),
}
"""Annotation in seconds -> smallest and largest value that a master accepts."""
_COUNTS = {ANNOTATION_MASTER_STEPS: MAX_STEPS, ANNOTATION_EPOCHS: MAX_EPOCHS}
"""Annotation with a whole number from 1 -> its largest value."""
_MASTER_SETTINGS = (*_COUNTS, *_SECONDS_RANGES, ANNOTATION_DATA)
"""Annotations with settings of EDL's master and of the data that it leases."""
_MASTER_MINIMUM = {
    ANNOTATION_MASTER_CPU: ("cpu", "1m"),
    ANNOTATION_MASTER_MEMORY: ("memory", "64Mi"),
}
_OF_EDLS_SERVERS = (ANNOTATION_SERVER_CPU, ANNOTATION_SERVER_MEMORY, ANNOTATION_CLAIM)
"""Annotations that apply only to EDL's own parameter servers."""
SERVER_ANNOTATIONS = (ANNOTATION_SERVERS, *_OF_EDLS_SERVERS, ANNOTATION_SERVER_TEMPLATE)
IMMUTABLE = (
    ANNOTATION_MASTER,
    *_MASTER_SETTINGS,
    ANNOTATION_MASTER_CPU,
    ANNOTATION_MASTER_MEMORY,
    ANNOTATION_MASTER_TEMPLATE,
    ANNOTATION_PROCESSES,
    ANNOTATION_ENVIRONMENT,
    *SERVER_ANNOTATIONS,
)
"""Annotations that cannot change, because existing pods would keep the old values."""
_MAX_CLAIM_CHARS = 253
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""RFC 1123 subdomain: the valid names of a PersistentVolumeClaim."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The settings of an elastic Job, with defaults filled in.

    Attributes:
        min_trainers: Guaranteed trainers, 1 to MAX_TRAINERS.
        max_trainers: Largest number of trainers, `min_trainers` to MAX_TRAINERS.
        weight: Weight in sharing, 1 to MAX_WEIGHT.
        queue: The queue that the Job names; "" for none.
        master: Whether the Job requests a master.
        master_settings: Settings of EDL's master, as annotations for the pod that hosts it.
        master_requests: Requests of EDL's master that the Job sets; cpu in millicores, memory in bytes.
        master_template_json: Pod template of a program that replaces EDL's master; b"" for none.
        token_generation: Generation of the job's token, 1 to MAX_TOKEN_GENERATION.
        servers: The parameter servers; None for none.
        sizes: Allowed numbers of trainers, ascending; () for any.
        processes: Processes that a trainer starts, 1 to MAX_PROCESSES.
        environment: Frameworks whose variables pods get, in order.
    """

    min_trainers: int = 0
    max_trainers: int = 0
    weight: int = 1
    queue: str = ""
    master: bool = False
    master_settings: Mapping[str, str] = field(default_factory=dict)
    master_requests: Resources = field(default_factory=dict)
    master_template_json: bytes = b""
    token_generation: int = 1
    servers: ServerSpec | None = None
    sizes: tuple[int, ...] = ()
    processes: int = 1
    environment: tuple[str, ...] = ()

    @property
    def edl_master(self) -> bool:
        """Whether the job has a master and this is EDL's own."""
        return self.master and not self.master_template_json


def is_elastic(annotations: Mapping[str, str]) -> bool:
    """Returns whether a Job is meant to be elastic: it has at least one of the two bounds."""
    return ANNOTATION_MIN in annotations or ANNOTATION_MAX in annotations


def parse(annotations: Mapping[str, str]) -> JobSettings:
    """Parses the annotations of an elastic Job.

    Raises:
        JobError: the first error; the message names the annotation and says what would be valid.
    """
    low, high = bounds(annotations)
    return JobSettings(
        min_trainers=low,
        max_trainers=high,
        weight=weight(annotations),
        queue=queue(annotations),
        master=master(annotations),
        master_settings=master_settings(annotations),
        token_generation=token_generation(annotations),
        servers=servers(annotations),
        sizes=sizes(annotations),
        processes=processes(annotations),
        environment=environment(annotations),
        master_requests=master_requests(annotations),
        master_template_json=master_template(annotations),
    )


def bounds(annotations: Mapping[str, str]) -> tuple[int, int]:
    """Returns (min, max) trainers, 1 <= min <= max <= MAX_TRAINERS.

    Raises:
        JobError: a bound is missing, not a whole number or out of range, or min > max.
    """
    low = _number(annotations, ANNOTATION_MIN, MAX_TRAINERS)
    high = _number(annotations, ANNOTATION_MAX, MAX_TRAINERS)
    if low > high:
        raise JobError(
            f"{ANNOTATION_MIN} is {low} and {ANNOTATION_MAX} is {high}: min must not exceed max"
        )
    return low, high


def weight(annotations: Mapping[str, str]) -> int:
    """Returns the job's weight in sharing, 1 to MAX_WEIGHT, by default 1.

    Raises:
        JobError: it is not a whole number in this range.
    """
    if ANNOTATION_WEIGHT not in annotations:
        return 1
    return _number(annotations, ANNOTATION_WEIGHT, MAX_WEIGHT)


def queue(annotations: Mapping[str, str]) -> str:
    """Returns the queue that the Job names; "" for none.

    Raises:
        JobError: it is not text, or longer than a label value may be.
    """
    name: object = annotations.get(ANNOTATION_QUEUE, "")
    if not isinstance(name, str) or len(name) > _MAX_QUEUE_CHARS:
        raise JobError(f"{ANNOTATION_QUEUE} is not text of at most {_MAX_QUEUE_CHARS} characters")
    return name


def master(annotations: Mapping[str, str]) -> bool:
    """Returns whether the job requests a master; False by default.

    Raises:
        JobError: it is neither "true" nor "false".
    """
    text = annotations.get(ANNOTATION_MASTER, "false")
    if text not in ("true", "false"):
        raise JobError(
            f'{ANNOTATION_MASTER} is {text[:40]!r}: write "true" for a master, or leave it out'
        )
    return text == "true"


def master_settings(annotations: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of EDL's master, as annotations for the pod that hosts it.

    Raises:
        JobError: the master would not accept a value, or the Job has no master.
    """
    settings = {
        name: str(_number(annotations, name, most))
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
        _need_master(annotations, name)
    return settings


def _data(text: str) -> str:
    """Returns the path of the data.

    Raises:
        JobError: it is empty, too long, or has unprintable characters.
    """
    if not text.strip() or len(text) > MAX_DATA_CHARS or not text.isprintable():
        raise JobError(
            f"{ANNOTATION_DATA} is {text[:40]!r}: write a path of the trainers, such as /data/train, "
            f"with at most {MAX_DATA_CHARS} characters in one line"
        )
    return text


def token_generation(annotations: Mapping[str, str]) -> int:
    """Returns the generation of the job's token, 1 to MAX_TOKEN_GENERATION, by default 1.

    Raises:
        JobError: it is not a whole number in this range, or the job has no master.
    """
    if ANNOTATION_TOKEN_GENERATION not in annotations:
        return 1
    _need_master(annotations, ANNOTATION_TOKEN_GENERATION)
    return _number(annotations, ANNOTATION_TOKEN_GENERATION, MAX_TOKEN_GENERATION)


def sizes(annotations: Mapping[str, str]) -> tuple[int, ...]:
    """Returns the allowed numbers of trainers, ascending; () if any number is allowed.

    Raises:
        JobError: it is not a list of whole numbers from 1 to MAX_TRAINERS.
    """
    if ANNOTATION_SIZES not in annotations:
        return ()
    entries = annotations[ANNOTATION_SIZES].split(",", MAX_SIZES)
    if len(entries) > MAX_SIZES:
        raise JobError(f"{ANNOTATION_SIZES} has more than {MAX_SIZES} numbers")
    values = {
        _number({ANNOTATION_SIZES: entry}, ANNOTATION_SIZES, MAX_TRAINERS) for entry in entries
    }
    return tuple(sorted(values))


def processes(annotations: Mapping[str, str]) -> int:
    """Returns the number of processes that a trainer starts, 1 to MAX_PROCESSES, by default 1.

    Raises:
        JobError: it is not a whole number in this range.
    """
    if ANNOTATION_PROCESSES not in annotations:
        return 1
    return _number(annotations, ANNOTATION_PROCESSES, MAX_PROCESSES)


def environment(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the frameworks whose variables pods get, in order.

    Raises:
        JobError: a framework does not exist, or the job uses torch but has no master, at which torch's
            processes meet.
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
        _need_master(annotations, f"{ANNOTATION_ENVIRONMENT}: {frameworks.TORCH}")
    return names


def master_requests(annotations: Mapping[str, str]) -> Resources:
    """Returns the requests of EDL's master that the Job sets.

    Raises:
        JobError: a request is not a quantity, or is less than a master needs.
    """
    requests = {}
    for name, (resource, least) in _MASTER_MINIMUM.items():
        if name not in annotations:
            continue
        try:
            requests[resource] = quantity.parse(resource, annotations[name])
        except QuantityError as error:
            raise JobError(f"{name}: {error}") from error
        if requests[resource] < quantity.parse(resource, least):
            raise JobError(f"{name} is {annotations[name][:40]!r}: a master needs at least {least}")
        _need_master(annotations, name)
    return requests


def master_template(annotations: Mapping[str, str]) -> bytes:
    """Returns the pod template of a program that replaces EDL's master, as JSON; b"" for none.

    Raises:
        JobError: it is invalid, or another annotation needs EDL's master.
    """
    template = role_templates.of_master(annotations)
    if template is None:
        return b""
    _need_master(annotations, ANNOTATION_MASTER_TEMPLATE)
    settings = (*_MASTER_SETTINGS, *_MASTER_MINIMUM, ANNOTATION_TOKEN_GENERATION)
    for name in settings:
        if name in annotations:
            raise JobError(
                f"{name} applies to EDL's own master, and {ANNOTATION_MASTER_TEMPLATE} has a program "
                "of yours: leave one of them out"
            )
    spec = servers(annotations)
    if spec is not None and not spec.ports:
        raise JobError(
            f"{ANNOTATION_SERVERS}: EDL's parameter servers need EDL's master, and "
            f"{ANNOTATION_MASTER_TEMPLATE} has your own program: remove one of them"
        )
    return orjson.dumps(template)


def servers(annotations: Mapping[str, str]) -> ServerSpec | None:
    """Returns the parameter servers that a Job requests; None for none.

    The requests of a user's program are in its template, and `kube.elastic_spec` adds them.

    Raises:
        JobError: an annotation is invalid; the message names it and says what would be valid.
    """
    if ANNOTATION_SERVERS not in annotations:
        for name in (*_OF_EDLS_SERVERS, ANNOTATION_SERVER_TEMPLATE):
            if name in annotations:
                raise JobError(
                    f"{name} applies to parameter servers, and the Job requests none: "
                    f'write {ANNOTATION_SERVERS}: "2" or the like, or leave it out'
                )
        return None
    count = _number(annotations, ANNOTATION_SERVERS, MAX_SERVERS)
    template = role_templates.of_servers(annotations)
    text = b"" if template is None else orjson.dumps(template)
    if template is not None and (ports := role_templates.ports(template)):
        for name in _OF_EDLS_SERVERS:
            if name in annotations:
                raise JobError(
                    f"{name} applies to EDL's own parameter servers, and "
                    f"{ANNOTATION_SERVER_TEMPLATE} has your own program: write it there"
                )
        return ServerSpec(count, {"pods": 1}, template_json=text, ports=ports)
    _need_master(annotations, ANNOTATION_SERVERS)
    requests = {
        "cpu": _amount(annotations, ANNOTATION_SERVER_CPU, "cpu", _SERVER_CPU, "1m"),
        "memory": _amount(
            annotations, ANNOTATION_SERVER_MEMORY, "memory", _SERVER_MEMORY, MIN_SERVER_MEMORY
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


def _need_master(annotations: Mapping[str, str], name: str) -> None:
    """Rejects an annotation that has no effect without a master.

    Raises:
        JobError: the job has no master.
    """
    if not master(annotations):
        raise JobError(
            f'{name} needs a master: write {ANNOTATION_MASTER}: "true" as well, or leave it out'
        )


def _number(annotations: Mapping[str, str], name: str, largest: int) -> int:
    """Returns the whole number from 1 to `largest` that an annotation holds.

    Raises:
        JobError: the annotation is missing or has any other value.
    """
    text = annotations.get(name)
    if text is None:
        raise JobError(
            f"{name} is missing: an elastic job needs both min and max, such as 2 and 60"
        )
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal()):
        raise JobError(f"{name} is {text[:40]!r}: write a whole number from 1 to {largest}")
    if len(digits) > 9 or not 1 <= int(digits) <= largest:  # noqa: PLR2004 - int() is slow for long text
        raise JobError(f"{name} is {text[:40]}: write a whole number from 1 to {largest}")
    return int(digits)
