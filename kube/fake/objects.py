"""What the fake API server does to objects as they come in. Pure.

Mirrors the registry strategies of k8s.io/kubernetes as far as EDL relies on them: status is
apart from spec, metadata belongs to the server, writes carry versions and uids.
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
    Resource,
)

Object = Mapping[str, Any]

_WITH_STATUS = (DEPLOYMENTS, JOBS, NODES, PODDISRUPTIONBUDGETS, PODS, REPLICASETS)
_SERVER_SET = ("uid", "creationTimestamp", "resourceVersion", "generation", "deletionTimestamp")
_ENDED = ("Succeeded", "Failed")
_DEFAULT_GRACE_S = 30


def stamp(now: datetime) -> str:
    """A metav1 `Time`."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def created(resource: Resource, body: Object, namespace: str, uid: str, now: datetime) -> Object:
    """A new object as it is stored, without a version yet; its name is settled."""
    metadata = {k: v for k, v in body["metadata"].items() if k not in _SERVER_SET}
    metadata |= {"uid": uid, "creationTimestamp": stamp(now), "generation": 1}
    if namespace:
        metadata["namespace"] = namespace
    obj = {**body, "metadata": metadata}
    if resource in _WITH_STATUS and resource != NODES:  # a kubelet registers with its status
        obj["status"] = {"phase": "Pending"} if resource == PODS else {}
    return obj


def updated(resource: Resource, old: Object, new: Object, subresource: str) -> Object:
    """`old` after a write of `new` to itself or to its status.

    Raises:
        Conflict: `new` was made from another version, or of another object.
        NotFound: there is no such subresource.
    """
    metadata = new.get("metadata") or {}
    for name in ("resourceVersion", "uid"):
        if metadata.get(name) not in (None, "", old["metadata"][name]):
            raise _conflict(resource, old, f"its {name} is {old['metadata'][name]}")
    kept = {k: old["metadata"][k] for k in _SERVER_SET if k in old["metadata"]}
    kept |= {k: old["metadata"][k] for k in ("name", "namespace") if k in old["metadata"]}
    merged = {**metadata, **kept}
    if subresource == "status" and resource in _WITH_STATUS:
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


def check_preconditions(resource: Resource, obj: Object, options: Object) -> None:
    """DeleteOptions' preconditions.

    Raises:
        Conflict: another object, or another version of it.
    """
    wanted = options.get("preconditions") or {}
    for name in ("uid", "resourceVersion"):
        actual = obj["metadata"][name]
        if wanted.get(name) not in (None, actual):
            raise _conflict(
                resource, obj, f"the {name} in the precondition ({wanted[name]}) is not {actual}"
            )


def grace_s(obj: Object, options: Object) -> int:
    """How long a pod may take to stop; 0 where nothing has to stop."""
    spec = obj.get("spec") or {}
    if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in _ENDED:
        return 0
    asked = options.get("gracePeriodSeconds")
    if asked is None:
        asked = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
    return int(asked)


def deleting(obj: Object, period_s: int, now: datetime) -> Object:
    """The object marked as on its way out; a second mark only shortens the first."""
    metadata = dict(obj["metadata"])
    if period_s < metadata.get("deletionGracePeriodSeconds", period_s + 1):
        metadata["deletionTimestamp"] = stamp(now + timedelta(seconds=period_s))
        metadata["deletionGracePeriodSeconds"] = period_s
    return {**obj, "metadata": metadata}


def disrupted(obj: Object, now: datetime) -> Object:
    """A pod with the condition that an eviction leaves on it."""
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
    """Whether a pod is evicted without asking budgets: not started, ended, or leaving."""
    phase = (obj.get("status") or {}).get("phase")
    return phase in ("Pending", *_ENDED) or "deletionTimestamp" in obj["metadata"]


def _conflict(resource: Resource, obj: Object, why: str) -> errors.Conflict:
    name = obj["metadata"]["name"]
    text = f'Operation cannot be fulfilled on {resource.plural} "{name}": {why}'
    return errors.Conflict(text, status=409, reason="Conflict")
