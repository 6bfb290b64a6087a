"""Decodes API objects (JSON as dicts) into the records of `policy.cluster.snapshot`. Pure.

The watch cache calls this module for every object, and the extender calls it for the pod in a request. The input
comes from an API server: values have the types of the published API, but fields may be missing or null. Malformed
quantities are read as 0 and raise no error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from math import isfinite
from sys import intern
from typing import Any

import orjson

from kube import elastic_spec, pod_failure, podspec
from policy.admission import job_settings
from policy.admission.views import JobView
from policy.cluster import membership, trainer_accounting
from policy.cluster.live_trainers import MAX_UNCOMMITTED_S
from policy.cluster.membership import NO_CONTROLLER, Controller, Membership
from policy.cluster.snapshot import (
    Job,
    JobCondition,
    JobStatus,
    Node,
    Phase,
    Pod,
    Taint,
)
from policy.names import (
    ANNOTATION_BOOKS,
    ANNOTATION_NODE_REQUEST,
    ANNOTATION_PLANNED_NODE,
    ANNOTATION_SCHEDULER,
    ANNOTATION_UNCOMMITTED,
    CHECK_RESOURCE,
    DEFAULT_SCHEDULER,
    LABEL_MASTER,
    MANAGER,
    MASTER_CONTAINER,
    TRAINER_RESOURCE,
    NodeRequest,
)
from policy.priority_classes import PriorityClassValues

Object = Mapping[str, Any]

_NODE_REQUESTS = {str(node_request): node_request for node_request in NodeRequest}
_PHASES = {str(phase): phase for phase in Phase}
_LACKED_ROOM = "OutOf"
"""Prefix of the reasons with which a kubelet rejects a pod because a resource is used up, such as OutOfcpu,
OutOfmemory or OutOfpods."""


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A core/v1 `ConfigMap` without its binary data."""

    namespace: str
    name: str
    uid: str
    data: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A scheduling.k8s.io/v1 `PriorityClass`."""

    name: str
    values: PriorityClassValues


def pod(obj: Object) -> Pod:
    """Decodes a core/v1 Pod; `requests` are counted as kube-scheduler does."""
    meta, spec = obj["metadata"], obj["spec"]
    status = obj.get("status") or {}
    labels = meta.get("labels") or {}
    annotations = meta.get("annotations") or {}
    # Status details are decoded only for pods for which some decision needs them. New details of other pods thus
    # leave their records equal and do not count as a change. Texts that many pods share are interned.
    phase = _PHASES.get(status.get("phase") or "Pending", Phase.UNKNOWN)
    ready, disrupted, refusal = _pod_conditions(status.get("conditions"))
    terminal = phase is Phase.SUCCEEDED or phase is Phase.FAILED
    controller = _controller(meta.get("ownerReferences"))
    member = _member(meta["name"], spec, controller, labels)
    failed_trainer = phase is Phase.FAILED and member.trainer_id >= 0
    is_rejected = phase is Phase.FAILED and pod_failure.is_rejected(status)
    init_names = [container.get("name") for container in spec.get("initContainers") or ()]
    master = labels.get(LABEL_MASTER) == "true" and MASTER_CONTAINER in init_names
    return Pod(
        namespace=intern(meta["namespace"]),
        name=meta["name"],
        uid=meta["uid"],
        requests=podspec.requests(spec, status),
        limits=podspec.limits(spec),
        priority=spec.get("priority") or 0,
        preempts=spec.get("preemptionPolicy") != "Never",
        node=intern(spec.get("nodeName") or ""),
        nominated=intern(status.get("nominatedNodeName") or ""),
        phase=phase,
        ready=ready,
        disrupted=disrupted,
        gated=bool(spec.get("schedulingGates")),
        deleting="deletionTimestamp" in meta,
        deleted_s=_deleted_s(meta),
        leaves_by_s=seconds(meta.get("deletionTimestamp")),
        created_s=seconds(meta.get("creationTimestamp")),
        started_s=seconds(status.get("startTime")),
        ended_s=_ended_s(status) if terminal else 0.0,
        restarts=pod_failure.restarts(spec, status) if member.trainer_id >= 0 else 0,
        exits=pod_failure.exits(status) if failed_trainer else (),
        end_conditions=pod_failure.conditions(status) if failed_trainer else (),
        ran_s=_ran_s(status) if terminal else 0.0,
        rejected=is_rejected,
        lacked_room=is_rejected and str(status.get("reason")).startswith(_LACKED_ROOM),
        owner_uid=controller.uid,
        job=intern(member.job),
        role=member.role,
        tier=member.tier,
        trainer_id=member.trainer_id,
        server=member.server,
        master=master,
        address=(status.get("podIP") or "") if master else "",
        planned=intern(annotations.get(ANNOTATION_PLANNED_NODE) or ""),
        node_request=_NODE_REQUESTS.get(annotations.get(ANNOTATION_NODE_REQUEST) or ""),
        uncommitted_s=_uncommitted_s(annotations.get(ANNOTATION_UNCOMMITTED)),
        constraints=podspec.constraints(spec),
        scheduler=intern(spec.get("schedulerName") or DEFAULT_SCHEDULER),
        asked_scheduler=intern(annotations.get(ANNOTATION_SCHEDULER) or ""),
        only_resources=podspec.only_resources(spec),
        resize=podspec.lacking(spec, status),
        refused=refusal is not None,
        insufficient=_insufficient(refusal or ""),
        marked=podspec.requests_marker(spec),
    )


def node(obj: Object) -> Node:
    """Decodes a core/v1 Node."""
    meta = obj["metadata"]
    spec = obj.get("spec") or {}
    status = obj.get("status") or {}
    allocatable = podspec.amounts(status.get("allocatable"))
    return Node(
        name=intern(meta["name"]),
        allocatable=allocatable,
        labels=meta.get("labels") or {},
        taints=tuple(
            Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("taints") or ()
        ),
        unschedulable=bool(spec.get("unschedulable")),
        **_readiness(status.get("conditions")),
    )


def job(obj: Object) -> Job | None:
    """Decodes a batch/v1 Job; returns None for a Job without min and max trainers, which is not elastic."""
    meta = obj["metadata"]
    annotations = meta.get("annotations") or {}
    if not job_settings.is_elastic(annotations):
        return None
    spec = obj["spec"]
    template = spec.get("template") or {}
    requests = podspec.requests(template.get("spec") or {})
    view = JobView.parse(obj)
    elastic = elastic_spec.read(view)
    settings = elastic.settings
    books_text = annotations.get(ANNOTATION_BOOKS) or ""
    return Job(
        namespace=intern(meta["namespace"]),
        name=meta["name"],
        uid=meta["uid"],
        min_trainers=settings.min_trainers,
        max_trainers=settings.max_trainers,
        requests=requests,
        constraints=podspec.constraints(template.get("spec") or {}),
        limits=podspec.limits(template.get("spec") or {}),
        weight=settings.weight,
        queue=settings.queue,
        master=settings.master,
        master_settings=settings.master_settings,
        master_requests=settings.master_requests,
        master_template_json=settings.master_template_json,
        token_generation=settings.token_generation,
        servers=settings.servers,
        sizes=settings.sizes,
        processes=settings.processes,
        environment=settings.environment,
        account=(template.get("spec") or {}).get("serviceAccountName") or "default",
        scheduler=intern((template.get("spec") or {}).get("schedulerName") or DEFAULT_SCHEDULER),
        created_s=seconds(meta.get("creationTimestamp")),
        managed=spec.get("managedBy") == MANAGER,
        parallelism=_or_default(spec.get("parallelism"), 1),
        suspended=bool(spec.get("suspend")),
        deleting="deletionTimestamp" in meta,
        backoff_limit=_or_default(spec.get("backoffLimit"), 6),
        deadline_s=_or_default(spec.get("activeDeadlineSeconds"), 0),
        failure_rules=view.failure_rules,
        replaces_ended=spec.get("podReplacementPolicy") == "Failed",
        status=_job_status(obj.get("status") or {}),
        accounting=trainer_accounting.parse(books_text),
        accounting_text=books_text,
        resource_version=meta.get("resourceVersion") or "",
        template_json=b"{}" if elastic.error else orjson.dumps(template),
        error=elastic.error or trainer_accounting.version_error(books_text),
    )


def configmap(obj: Object) -> ConfigMap:
    """Decodes a core/v1 ConfigMap."""
    meta = obj["metadata"]
    return ConfigMap(
        meta["namespace"],
        meta["name"],
        meta["uid"],
        obj.get("data") or {},
    )


def priority_class(obj: Object) -> PriorityClass:
    """Decodes a scheduling.k8s.io/v1 PriorityClass."""
    values = PriorityClassValues(
        int(obj.get("value") or 0),
        obj.get("preemptionPolicy") or "PreemptLowerPriority",
        bool(obj.get("globalDefault")),
    )
    return PriorityClass(obj["metadata"]["name"], values)


@lru_cache(maxsize=8192)
def seconds(text: str | None) -> float:
    """Converts RFC 3339 to seconds since the epoch; returns 0 for None, "" and unparsable text."""
    if not text:
        return 0.0
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return time.timestamp() if time.tzinfo is not None else 0.0


def _or_default(number: object, default: int) -> int:
    """Returns the number, or the default if it is missing or invalid."""
    return number if isinstance(number, int) else default


def _pod_conditions(conditions: list[Object] | None) -> tuple[bool, bool, str | None]:
    """Returns whether Ready is true, whether DisruptionTarget is, and the message of an Unschedulable pod."""
    ready = disrupted = False
    refusal: str | None = None
    for condition in conditions or ():
        kind, status = condition.get("type"), condition.get("status")
        if kind == "Ready":
            ready = status == "True"
        elif kind == "DisruptionTarget":
            disrupted = status == "True"
        elif kind == "PodScheduled":
            refused = status == "False" and condition.get("reason") == "Unschedulable"
            refusal = condition.get("message") or "" if refused else None
    return ready, disrupted, refusal


def _insufficient(message: str) -> tuple[str, ...]:
    """Returns EDL's own resources that a message of NodeResourcesFit names as insufficient."""
    if "Insufficient edl.training/" not in message:
        return ()
    return tuple(
        name for name in (TRAINER_RESOURCE, CHECK_RESOURCE) if f"Insufficient {name}" in message
    )


def _readiness(conditions: list[Object] | None) -> dict[str, Any]:
    """Returns fields of a `Node` from the Ready condition; a node without this condition is not ready."""
    condition = next((c for c in conditions or () if c.get("type") == "Ready"), {})
    ready = condition.get("status") == "True"
    return {
        "ready": ready,
        "silent": condition.get("status") == "Unknown",
        "unready_s": 0.0 if ready else seconds(condition.get("lastTransitionTime")),
    }


def _ended_s(status: Object) -> float:
    """Returns the time at which the last container ended.

    A pod that its node refused never had containers; for such a pod, returns the time at which one of its
    conditions last changed.
    """
    ends = [
        seconds(((c.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for c in status.get("containerStatuses") or ()
    ]
    changes = [seconds(c.get("lastTransitionTime")) for c in status.get("conditions") or ()]
    return max(ends, default=0.0) or max(changes, default=0.0)


def _ran_s(status: Object) -> float:
    """Returns how long the containers of an ended pod ran, including init containers and sidecars.

    A container that the runtime could not start has no start time, or the Unix epoch.
    """
    ends = [c["state"]["terminated"] for c in pod_failure.ended_containers(status)]
    starts = [start for end in ends if (start := seconds(end.get("startedAt")))]
    end_s = max((seconds(end.get("finishedAt")) for end in ends), default=0.0)
    return max(0.0, end_s - min(starts)) if starts else 0.0


def _deleted_s(meta: Object) -> float:
    """Returns the time at which the deletion was requested; `deletionTimestamp` ends the grace period."""
    ends_s = seconds(meta.get("deletionTimestamp"))
    return ends_s - (meta.get("deletionGracePeriodSeconds") or 0) if ends_s else 0.0


def _controller(references: list[Object] | None) -> Controller:
    for reference in references or ():
        if reference.get("controller"):
            is_job = reference.get("kind") == "Job" and reference.get("apiVersion") == "batch/v1"
            return Controller(intern(reference["uid"]), intern(reference["name"]), is_job)
    return NO_CONTROLLER


def _member(
    name: str, spec: Object, controller: Controller, labels: Mapping[str, str]
) -> Membership:
    priority_class, priority = spec.get("priorityClassName") or "", spec.get("priority") or 0
    return membership.of(name, controller, labels, priority_class, priority)


def _uncommitted_s(text: str | None) -> float:
    """Parses a number of seconds, at most a month; returns 0 if it is missing or not a finite number."""
    try:
        uncommitted_s = float(text or 0.0)
    except ValueError:
        return 0.0
    return min(max(0.0, uncommitted_s), MAX_UNCOMMITTED_S) if isfinite(uncommitted_s) else 0.0


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
