"""Requests, limits and scheduling constraints of a pod spec, computed as kube-scheduler does. Pure.

Source: k8s.io/component-helpers `resource.PodRequests` and `nodeaffinity`. Thousands of pods come from a
few templates, so results are cached by the raw JSON of the spec and shared between pods with the same
spec, which saves time and memory.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import orjson

from kube.byte_cache import ByteCache
from policy import quantity
from policy.admission import unstructured
from policy.admission.job_spec import MAX_CONSTRAINTS, MAX_CONSTRAINTS_BYTES
from policy.cluster.amounts import add
from policy.cluster.snapshot import ANYWHERE, Constraints, Requirement, Resources, Toleration
from policy.errors import QuantityError
from policy.names import NODE_NAME, TRAINER_RESOURCE

_CACHE_BYTES = 2 * 2**20
"""Size of each cache, enough for thousands of different pod specs."""
_POD_LEVEL = ("cpu", "memory")
_RESTRICTED_VOLUMES = frozenset(
    (
        "persistentVolumeClaim",
        "ephemeral",
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "rbd",
        "iscsi",
    )
)
"""Types of volumes for which the plugins VolumeBinding and VolumeRestrictions can rule out nodes."""
_NOWHERE = (Requirement(NODE_NAME, "In", ()),)
"""A term that matches no node. In Kubernetes, a node selector with only empty terms matches no node."""


def requests(spec: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> Resources:
    """Returns the requests that kube-scheduler counts: containers, sidecars, overhead and "pods".

    Limits replace missing requests, as in the API server's defaulting. EDL's marker resource is left out
    (`ignoredByScheduler`). A malformed quantity counts as 0.

    Args:
        spec: A core/v1 `PodSpec`.
        status: The pod's `PodStatus`. During an in-place resize, each container counts with the largest
            of its requested, allocated and actual amounts. If its node can never grant the resize
            (Infeasible), the requested amounts do not count.
    """
    return _counted(spec, status or {}, infeasible=resize_state(status or {}) == "Infeasible")


def lacking(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Resources | None:
    """Returns the resources that a pod's node lacks for a deferred resize, or None if no resize is deferred."""
    if resize_state(status) != "Deferred":
        return None
    wanted = _counted(spec, status, infeasible=False)
    present = _counted(spec, status, infeasible=True)
    growth = {name: amount - present.get(name, 0) for name, amount in wanted.items()}
    return {name: amount for name, amount in growth.items() if amount > 0} or None


def resize_state(status: Mapping[str, Any]) -> str:
    """Returns the reason of the condition PodResizePending (Deferred or Infeasible), or ""."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodResizePending":
            return condition.get("reason") or ""
    return ""


def _counted(spec: Mapping[str, Any], status: Mapping[str, Any], *, infeasible: bool) -> Resources:
    """Returns the requests from the cache, whose key is the JSON of all fields that they depend on."""
    containers = spec.get("containers") or ()
    init = spec.get("initContainers") or ()
    statuses = {
        entry.get("name"): entry
        for kind in ("containerStatuses", "initContainerStatuses")
        for entry in status.get(kind) or ()
    }
    return _requests(
        orjson.dumps(
            (
                [
                    (c.get("resources"), _granted(c, statuses.get(c.get("name"))))
                    for c in containers
                ],
                [
                    (
                        c.get("resources"),
                        c.get("restartPolicy"),
                        _granted(c, statuses.get(c.get("name"))),
                    )
                    for c in init
                ],
                (spec.get("resources"), _granted(spec, status)),
                spec.get("overhead"),
                infeasible,
            )
        )
    )


def _granted(holder: Mapping[str, Any], status: Mapping[str, Any] | None) -> list[Any] | None:
    """Returns the allocated and the actual requests of a container, or of the pod as a whole.

    Returns None if the status lacks them, or if both equal the requests in the spec. Most pods therefore
    share the cache entry of their spec.
    """
    actuated = (status or {}).get("resources")
    if status is None or actuated is None:
        return None
    requested = (holder.get("resources") or {}).get("requests")
    granted = [status.get("allocatedResources"), actuated.get("requests")]
    return None if granted == [requested, requested] else granted


def limits(spec: Mapping[str, Any]) -> Resources:
    """Returns the limits of a pod of this spec, added up as core/v1 `ResourceQuota` does.

    A resource that one of the containers does not limit is left out, because the pod then has no limit for it
    either. A malformed quantity counts as no limit.
    """
    containers = spec.get("containers") or ()
    whole = [(c.get("resources") or {}).get("limits") for c in (*containers, *_sidecars(spec))]
    return _limits(orjson.dumps((whole, (spec.get("resources") or {}).get("limits"))))


def constraints(spec: Mapping[str, Any]) -> Constraints:
    """Returns the node selector, required node affinity and tolerations of a pod of this spec.

    Returns `UNREAD` if they are larger than `policy.admission.job_spec` allows for Jobs, because a
    plan compares them with every node. EDL then leaves the placement of the pod to kube-scheduler.
    """
    raw = orjson.dumps(_constraint_fields(spec))
    if len(raw) > MAX_CONSTRAINTS_BYTES:
        return UNREAD
    pod_constraints = _IN_USE.get(raw)
    if pod_constraints is None:
        pod_constraints = _decode_constraints(raw)
        if pod_constraints not in (UNREAD, ANYWHERE):  # these two constants need no sharing
            _IN_USE[raw] = pod_constraints
    return pod_constraints


def _constraint_fields(spec: Mapping[str, Any]) -> tuple[object, object, object]:
    """Returns (node selector, required node affinity, tolerations) as written."""
    node_affinity = unstructured.mapping(unstructured.mapping(spec, "affinity"), "nodeAffinity")
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return spec.get("nodeSelector"), required or None, spec.get("tolerations")


def only_resources(spec: Mapping[str, Any]) -> bool:
    """Returns whether a pod of this spec asks kube-scheduler for resources and nodes only.

    Claims, disks, host ports (also those of sidecars), required pod affinity or anti-affinity, topology
    spreading with DoNotSchedule, and groups that are placed as a whole can keep a pod pending even when
    capacity is freed.
    """
    affinity = spec.get("affinity") or {}
    return not (
        spec.get("resourceClaims")
        or spec.get("schedulingGroup")
        or any(not _RESTRICTED_VOLUMES.isdisjoint(volume) for volume in spec.get("volumes") or ())
        or any(_has_required(affinity.get(kind)) for kind in ("podAffinity", "podAntiAffinity"))
        or any(
            spread.get("whenUnsatisfiable") == "DoNotSchedule"
            for spread in spec.get("topologySpreadConstraints") or ()
        )
        or any(
            port.get("hostPort")
            for container in (*(spec.get("containers") or ()), *_sidecars(spec))
            for port in container.get("ports") or ()
        )
    )


def _sidecars(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the init containers that run as long as the pod does."""
    return [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]


def requests_marker(spec: Mapping[str, Any]) -> bool:
    """Returns whether a container of this spec requests EDL's marker resource."""
    return any(
        TRAINER_RESOURCE in ((container.get("resources") or {}).get("requests") or ())
        for container in spec.get("containers") or ()
    )


def _has_required(rule: Mapping[str, Any] | None) -> bool:
    return bool(rule and rule.get("requiredDuringSchedulingIgnoredDuringExecution"))


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Parses a map of quantities; malformed quantities are left out, and None results in an empty map."""
    parsed: dict[str, int] = {}
    for name, text in (quantities or {}).items():
        with suppress(QuantityError):
            parsed[name] = quantity.parse(name, str(text))
    return parsed


def _decode_requests(raw: bytes) -> Resources:
    containers, init, (pod_level, pod_granted), overhead, infeasible = orjson.loads(raw)
    total: dict[str, int] = {}
    for resources, granted in containers:
        add(total, _effective(resources, granted, infeasible=infeasible))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for resources, restart_policy, granted in init:
        if restart_policy == "Always":
            requested = _effective(resources, granted, infeasible=infeasible)
            add(total, requested)
            add(sidecars, requested)
            _raise_to(peak, sidecars)
        else:
            requested = _requested(resources)
            add(requested, sidecars)
            _raise_to(peak, requested)
    _raise_to(total, peak)
    _override(total, pod_level or {}, pod_granted, infeasible=infeasible)
    add(total, amounts(overhead))
    total["pods"] = 1
    total.pop(TRAINER_RESOURCE, None)
    return dict(sorted((name, amount) for name, amount in total.items() if amount))


_requests = ByteCache(_decode_requests, _CACHE_BYTES)


def _decode_limits(raw: bytes) -> Resources:
    containers, of_pod = orjson.loads(raw)
    container_limits = [amounts(limits) for limits in containers]
    whole = set.intersection(*map(set, container_limits)) if container_limits else set()
    total = {name: sum(resources[name] for resources in container_limits) for name in whole}
    return total | {name: limit for name, limit in amounts(of_pod).items() if name in _POD_LEVEL}


_limits = ByteCache(_decode_limits, _CACHE_BYTES)


def _requested(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """Returns the requests of a core/v1 `ResourceRequirements`."""
    resources = resources or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _effective(
    resources: Mapping[str, Any] | None, granted: list[Any] | None, *, infeasible: bool
) -> dict[str, int]:
    """Returns requests during a resize (k8s.io/component-helpers `determineEffectiveRequests`)."""
    if granted is None:
        return _requested(resources)
    effective = {} if infeasible else _requested(resources)
    for quantities in granted:
        _raise_to(effective, amounts(quantities))
    return effective


def _override(
    total: dict[str, int],
    pod_level: Mapping[str, Any],
    granted: list[Any] | None,
    *,
    infeasible: bool,
) -> None:
    """Replaces the containers' sum by pod-level requests.

    A pod-level limit only counts for a resource without a pod-level request and without a sum.
    """
    requested, limits = amounts(pod_level.get("requests")), amounts(pod_level.get("limits"))
    if granted is not None:
        of_pod = {"requests": pod_level.get("requests")}
        effective = _effective(of_pod, granted, infeasible=infeasible)
        requested = {name: effective.get(name, 0) for name in requested}
    for name in (*requested, *limits):
        if name in _POD_LEVEL or name.startswith("hugepages-"):
            total[name] = requested[name] if name in requested else total.get(name, limits[name])


def _raise_to(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)


def _decode_constraints(raw: bytes) -> Constraints:
    selector, required, tolerations = orjson.loads(raw)
    pod_constraints = Constraints(_terms(selector or {}, required), _tolerations(tolerations or ()))
    if sum(map(len, pod_constraints.terms)) + len(pod_constraints.tolerations) > MAX_CONSTRAINTS:
        return UNREAD
    return ANYWHERE if pod_constraints == ANYWHERE else pod_constraints


UNREAD = Constraints((_NOWHERE,))
"""Stands for constraints that are too large; matches no node."""
_IN_USE: WeakValueDictionary[bytes, Constraints] = WeakValueDictionary()
"""Text -> the constraints that records share; an entry disappears with the last record that uses it."""


def _terms(
    selector: Mapping[str, str], required: Mapping[str, Any] | None
) -> tuple[tuple[Requirement, ...], ...]:
    everywhere = tuple(Requirement(k, "In", (v,)) for k, v in sorted(selector.items()))
    if required is None:
        return (everywhere,) if everywhere else ()
    terms = tuple(_term(term) for term in required.get("nodeSelectorTerms") or ())
    return tuple(term + everywhere for term in terms if term) or (_NOWHERE,)


def _term(term: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """Converts a `NodeSelectorTerm`; an empty term has no requirements and matches no node."""
    entries = (*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ()))
    return tuple(
        Requirement(e["key"], e["operator"], tuple(e.get("values") or ())) for e in entries
    )


def _tolerations(entries: Iterable[Mapping[str, Any]]) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            key=e.get("key") or "",
            operator=e.get("operator") or "Equal",
            value=e.get("value") or "",
            effect=e.get("effect") or "",
        )
        for e in entries
    )
