"""API objects (JSON as dicts) to the core's records.

Pure. Who calls: the watch cache for every object, the extender for the pod it is asked about.
Input is what an API server sends, so types are as published; missing and null fields are
normal. Quantities that cannot be read count as 0 and are counted in `malformed`; nothing here
raises for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from math import isfinite
from sys import intern
from typing import Any

from kube import podspec
from policy import books, elastic, servers
from policy.errors import JobError
from policy.names import (
    ANNOTATION_BOOKS,
    ANNOTATION_PLANNED_NODE,
    ANNOTATION_UNCOMMITTED,
    LABEL_JOB,
    LABEL_MASTER,
    LABEL_ROLE,
    LABEL_SERVER,
    LABEL_TIER,
    LABEL_TRAINER_ID,
    MANAGER,
    Role,
    Tier,
)
from policy.snapshot import Job, JobCondition, JobStatus, Node, Phase, Pod, Servers, Taint

Object = Mapping[str, Any]

_ROLES = {str(role): role for role in Role}
_TIERS = {str(tier): tier for tier in Tier}
_PHASES = {str(phase): phase for phase in Phase}
_LONGEST_ID = 9


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """core/v1 `ConfigMap`, its text part."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    data: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """scheduling.k8s.io/v1 `PriorityClass`."""

    name: str
    uid: str
    value: int
    preemption_policy: str
    """"PreemptLowerPriority" or "Never"."""


class Decoder:
    """Decodes and counts what could not be read. One per cache; one thread at a time."""

    def __init__(self) -> None:
        self.malformed = 0
        """Quantities that could not be read and were taken as 0."""

    def pod(self, obj: Object) -> Pod:
        """A core/v1 Pod; `requests` as the scheduler counts them."""
        meta = obj["metadata"]
        spec = obj["spec"]
        status = obj.get("status") or {}
        labels = meta.get("labels") or {}
        annotations = meta.get("annotations") or {}
        asked = podspec.requests(spec)
        self.malformed += asked.malformed
        phase = _PHASES.get(status.get("phase") or "Pending", Phase.UNKNOWN)
        ready, disrupted = _pod_conditions(status.get("conditions"))
        terminal = phase is Phase.SUCCEEDED or phase is Phase.FAILED
        master = labels.get(LABEL_MASTER) == "true"
        return Pod(
            namespace=intern(meta["namespace"]),
            name=meta["name"],
            uid=meta["uid"],
            requests=asked.resources,
            priority=spec.get("priority") or 0,
            preempts=spec.get("preemptionPolicy") != "Never",
            node=intern(spec.get("nodeName") or ""),
            nominated=intern(status.get("nominatedNodeName") or ""),
            phase=phase,
            ready=ready,
            disrupted=disrupted,
            gated=bool(spec.get("schedulingGates")),
            deleting="deletionTimestamp" in meta,
            created_s=seconds(meta.get("creationTimestamp")),
            started_s=seconds(status.get("startTime")),
            ended_s=_ended_s(status) if terminal else 0.0,
            owner_uid=_controller(meta.get("ownerReferences")),
            job=intern(labels.get(LABEL_JOB) or ""),
            role=_ROLES.get(labels.get(LABEL_ROLE, "")),
            tier=_TIERS.get(labels.get(LABEL_TIER, "")),
            trainer_id=_number(labels.get(LABEL_TRAINER_ID)),
            server=_number(labels.get(LABEL_SERVER)),
            master=master,
            address=(status.get("podIP") or "") if master else "",
            planned=intern(annotations.get(ANNOTATION_PLANNED_NODE) or ""),
            uncommitted_s=_uncommitted_s(annotations.get(ANNOTATION_UNCOMMITTED)),
            constraints=podspec.constraints(spec),
            scheduler=intern(spec.get("schedulerName") or "default-scheduler"),
        )

    def node(self, obj: Object) -> Node:
        """A core/v1 Node."""
        meta = obj["metadata"]
        spec = obj.get("spec") or {}
        status = obj.get("status") or {}
        allocatable = podspec.amounts(status.get("allocatable") or {})
        self.malformed += allocatable.malformed
        return Node(
            name=intern(meta["name"]),
            allocatable=allocatable.resources,
            labels=meta.get("labels") or {},
            taints=tuple(
                Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("taints") or ()
            ),
            unschedulable=bool(spec.get("unschedulable")),
            ready=_is_true(status.get("conditions"), "Ready"),
        )

    def job(self, obj: Object) -> Job | None:
        """A batch/v1 Job; None when it carries neither bound, so is none of ours."""
        meta = obj["metadata"]
        annotations = meta.get("annotations") or {}
        if not elastic.is_elastic(annotations):
            return None
        spec = obj["spec"]
        template = spec.get("template") or {}
        asked = podspec.requests(template.get("spec") or {})
        self.malformed += asked.malformed
        wish = _wish(annotations, spec)
        books_text = annotations.get(ANNOTATION_BOOKS) or ""
        return Job(
            namespace=intern(meta["namespace"]),
            name=meta["name"],
            uid=meta["uid"],
            min_trainers=wish.low,
            max_trainers=wish.high,
            requests=asked.resources,
            constraints=podspec.constraints(template.get("spec") or {}),
            limits=podspec.limits(template.get("spec") or {}),
            weight=wish.weight,
            queue=wish.queue,
            master=wish.master,
            master_settings=wish.master_settings,
            servers=wish.servers,
            account=(template.get("spec") or {}).get("serviceAccountName") or "default",
            created_s=seconds(meta.get("creationTimestamp")),
            managed=spec.get("managedBy") == MANAGER,
            parallelism=_or(spec.get("parallelism"), 1),
            suspended=bool(spec.get("suspend")),
            deleting="deletionTimestamp" in meta,
            backoff_limit=_or(spec.get("backoffLimit"), 6),
            deadline_s=_or(spec.get("activeDeadlineSeconds"), 0),
            status=_job_status(obj.get("status") or {}),
            books=books.parse(books_text),
            books_text=books_text,
            resource_version=meta.get("resourceVersion") or "",
            template=template,
            error=wish.error,
        )


def pod(obj: Object) -> Pod:
    """One core/v1 Pod."""
    return Decoder().pod(obj)


def node(obj: Object) -> Node:
    """One core/v1 Node."""
    return Decoder().node(obj)


def job(obj: Object) -> Job | None:
    """One batch/v1 Job; None when it carries neither bound."""
    return Decoder().job(obj)


def configmap(obj: Object) -> ConfigMap:
    """One core/v1 ConfigMap."""
    meta = obj["metadata"]
    return ConfigMap(
        meta["namespace"],
        meta["name"],
        meta["uid"],
        meta.get("resourceVersion") or "",
        obj.get("data") or {},
    )


def priority_class(obj: Object) -> PriorityClass:
    """One scheduling.k8s.io/v1 PriorityClass."""
    meta = obj["metadata"]
    policy = obj.get("preemptionPolicy") or "PreemptLowerPriority"
    return PriorityClass(meta["name"], meta["uid"], int(obj.get("value") or 0), policy)


@lru_cache(maxsize=8192)
def seconds(text: str | None) -> float:
    """RFC 3339 to seconds since the epoch; 0 for nothing, and for what cannot be read."""
    if not text:
        return 0.0
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return time.timestamp() if time.tzinfo is not None else 0.0


@dataclass(frozen=True, slots=True)
class _Wish:
    low: int = 0
    high: int = 0
    weight: int = 1
    queue: str = ""
    master: bool = False
    master_settings: Mapping[str, str] = field(default_factory=dict)
    servers: Servers | None = None
    error: str = ""


def _wish(annotations: Mapping[str, str], spec: Object) -> _Wish:
    try:
        elastic.check_spec(spec)
        elastic.check_stored(spec)
        low, high = elastic.bounds(annotations)
        return _Wish(
            low,
            high,
            elastic.weight(annotations),
            elastic.queue(annotations),
            elastic.master(annotations),
            elastic.master_settings(annotations),
            servers.asked(annotations),
        )
    except JobError as error:
        return _Wish(error=str(error))


def _or(number: int | None, default: int) -> int:
    return default if number is None else number


def _pod_conditions(conditions: list[Object] | None) -> tuple[bool, bool]:
    """(Ready, DisruptionTarget)."""
    ready = disrupted = False
    for condition in conditions or ():
        if condition.get("status") == "True":
            kind = condition.get("type")
            if kind == "Ready":
                ready = True
            elif kind == "DisruptionTarget":
                disrupted = True
    return ready, disrupted


def _is_true(conditions: list[Object] | None, kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions or ())


def _ended_s(status: Object) -> float:
    """When the last container ended; a pod refused by its node never had any: its last change."""
    ends = [
        seconds(((c.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for c in status.get("containerStatuses") or ()
    ]
    changes = [seconds(c.get("lastTransitionTime")) for c in status.get("conditions") or ()]
    return max(ends, default=0.0) or max(changes, default=0.0)


def _controller(references: list[Object] | None) -> str:
    for reference in references or ():
        if reference.get("controller"):
            return intern(reference["uid"])
    return ""


def _number(text: str | None) -> int:
    """An id or index; -1 for none."""
    if text and len(text) <= _LONGEST_ID and text.isascii() and text.isdecimal():
        return int(text)
    return -1


def _uncommitted_s(text: str | None) -> float:
    """0 where nobody says, or says no number of seconds."""
    try:
        found = float(text or 0.0)
    except ValueError:
        return 0.0
    return max(0.0, found) if isfinite(found) else 0.0


def _job_status(status: Object) -> JobStatus:
    return JobStatus(
        active=status.get("active") or 0,
        ready=status.get("ready") or 0,
        terminating=status.get("terminating") or 0,
        succeeded=status.get("succeeded") or 0,
        failed=status.get("failed") or 0,
        start_s=seconds(status.get("startTime")),
        completion_s=seconds(status.get("completionTime")),
        conditions=tuple(
            JobCondition(
                type=c["type"],
                status=c["status"],
                reason=c.get("reason") or "",
                message=c.get("message") or "",
                time_s=seconds(c.get("lastTransitionTime")),
            )
            for c in status.get("conditions") or ()
        ),
    )
