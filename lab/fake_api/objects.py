"""How the fake API server changes objects before it stores them. Pure.

Mirrors the registry strategies of k8s.io/kubernetes as far as EDL relies on them: status is
written separately from spec, the server owns metadata, writes carry versions and uids.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from kube import errors
from kube.request import (
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODDISRUPTIONBUDGETS,
    PODS,
    REPLICASETS,
    TRAININGJOBS,
    Resource,
)

Object = Mapping[str, Any]

_WITH_STATUS = (
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODDISRUPTIONBUDGETS,
    PODS,
    REPLICASETS,
    TRAININGJOBS,
)
_SERVER_SET = ("uid", "creationTimestamp", "resourceVersion", "generation", "deletionTimestamp")
_ENDED = ("Succeeded", "Failed")
_DEFAULT_GRACE_S = 30


def stamp(now: datetime) -> str:
    """Formats a metav1 `Time`."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def prepare_for_create(
    resource: Resource, body: Object, namespace: str, uid: str, now: datetime
) -> Object:
    """Returns a new object as it is stored, except for its version; it must have a name."""
    metadata = {k: v for k, v in body["metadata"].items() if k not in _SERVER_SET}
    metadata |= {"uid": uid, "creationTimestamp": stamp(now), "generation": 1}
    if namespace:
        metadata["namespace"] = namespace
    obj = {**body, "metadata": metadata}
    if resource in _WITH_STATUS and resource != NODES:  # a kubelet registers with its status
        obj["status"] = {"phase": "Pending"} if resource == PODS else {}
    return obj


def prepare_for_update(resource: Resource, old: Object, new: Object, subresource: str) -> Object:
    """Returns the result of writing `new` over `old`, or over its status.

    Raises:
        Conflict: `new` is based on another version, or has another uid.
        NotFound: there is no such subresource.
        Invalid: a Job that has finished, without startTime.
    """
    metadata = new.get("metadata") or {}
    for name in ("resourceVersion", "uid"):
        if metadata.get(name) not in (None, "", old["metadata"][name]):
            raise _conflict(resource, old, f"its {name} is {old['metadata'][name]}")
    server_fields = {k: old["metadata"][k] for k in _SERVER_SET if k in old["metadata"]}
    server_fields |= {k: old["metadata"][k] for k in ("name", "namespace") if k in old["metadata"]}
    merged = {**metadata, **server_fields}
    if subresource == "status" and resource in _WITH_STATUS:
        if resource == JOBS:
            _check_job_status(old, new.get("status") or {})
        return {**old, "metadata": merged, "status": new.get("status") or {}}
    if subresource:
        raise errors.NotFound(
            f"{resource.plural} have no {subresource}", status=404, reason="NotFound"
        )
    result = {**new, "metadata": merged}
    if resource in _WITH_STATUS:
        result["status"] = old.get("status") or {}
    if result.get("spec") != old.get("spec"):
        merged["generation"] = old["metadata"].get("generation", 1) + 1
    return result


def _check_job_status(old: Object, status: Object) -> None:
    """Raises Invalid if a Job would become finished without startTime (batch/job/strategy.go)."""
    if status.get("startTime") or not _is_finished(status) or _is_finished(old.get("status") or {}):
        return
    text = (
        f'Job.batch "{old["metadata"]["name"]}" is invalid: status.startTime: Required value: '
        "startTime is required for finished job"
    )
    raise errors.Invalid(text, status=422, reason="Invalid")


def _is_finished(status: Object) -> bool:
    return any(
        c.get("type") in ("Complete", "Failed") and c.get("status") == "True"
        for c in status.get("conditions") or ()
    )


def check_preconditions(resource: Resource, obj: Object, options: Object) -> None:
    """Checks the preconditions in DeleteOptions.

    Raises:
        Conflict: the object has another uid or version.
    """
    preconditions = options.get("preconditions") or {}
    for name in ("uid", "resourceVersion"):
        actual = obj["metadata"][name]
        if preconditions.get(name) not in (None, actual):
            raise _conflict(
                resource,
                obj,
                f"the {name} in the precondition ({preconditions[name]}) is not {actual}",
            )


def grace_s(obj: Object, options: Object) -> int:
    """Returns the grace period of a pod's deletion; 0 if none of its containers can be running."""
    spec = obj.get("spec") or {}
    if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in _ENDED:
        return 0
    grace_period_s = options.get("gracePeriodSeconds")
    if grace_period_s is None:
        grace_period_s = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
    return int(grace_period_s) if grace_period_s >= 0 else 1  # as CheckGracefulDelete


def mark_deleting(obj: Object, period_s: int, now: datetime) -> Object:
    """Returns the object marked for deletion; a second mark can only shorten the grace period."""
    metadata = dict(obj["metadata"])
    if period_s < metadata.get("deletionGracePeriodSeconds", period_s + 1):
        metadata["deletionTimestamp"] = stamp(now + timedelta(seconds=period_s))
        metadata["deletionGracePeriodSeconds"] = period_s
    return {**obj, "metadata": metadata}


def mark_disrupted(obj: Object, now: datetime) -> Object:
    """Returns the pod with the condition that an eviction sets."""
    status = dict(obj.get("status") or {})
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": stamp(now),
    }
    status["conditions"] = [*(status.get("conditions") or ()), condition]
    return {**obj, "status": status}


def ignores_budgets(obj: Object) -> bool:
    """Returns whether a pod may be evicted regardless of budgets: not started, ended, or terminating."""
    phase = (obj.get("status") or {}).get("phase")
    return phase in ("Pending", *_ENDED) or "deletionTimestamp" in obj["metadata"]


def _conflict(resource: Resource, obj: Object, reason: str) -> errors.Conflict:
    name = obj["metadata"]["name"]
    text = f'Operation cannot be fulfilled on {resource.plural} "{name}": {reason}'
    return errors.Conflict(text, status=409, reason="Conflict")
