"""Requests, limits and scheduling constraints of a pod spec, computed as kube-scheduler does.

Pure. Source: k8s.io/component-helpers `resource.PodRequests`, k8s.io/component-helpers
`nodeaffinity`. Thousands of pods come from a few templates, so results are cached by the raw JSON
of the spec and shared between pods with the same spec, which saves time and memory.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import orjson

from policy import quantity
from policy.amounts import add
from policy.errors import QuantityError
from policy.names import TRAINER_RESOURCE
from policy.snapshot import ANYWHERE, Constraints, Requirement, Resources, Toleration

_SHAPES = 4096
"""Entries of each cache: different pod specs at one time."""
_POD_LEVEL = ("cpu", "memory")
_NOWHERE = (Requirement("metadata.name", "In", ()),)
"""A term that no node matches: the meaning upstream of a selector that has only empty terms."""


def requests(spec: Mapping[str, Any]) -> Resources:
    """The requests that kube-scheduler counts: containers, sidecars, overhead and "pods".

    Limits replace missing requests, as the API server's defaulting does. EDL's marker resource is
    left out (`ignoredByScheduler`). A malformed quantity counts as 0.
    """
    return _requests(
        orjson.dumps(
            (
                [c.get("resources") for c in spec.get("containers") or ()],
                [
                    (c.get("resources"), c.get("restartPolicy"))
                    for c in spec.get("initContainers") or ()
                ],
                spec.get("resources"),
                spec.get("overhead"),
            )
        )
    )


def limits(spec: Mapping[str, Any]) -> Resources:
    """The limits of a pod of this spec, added up as core/v1 `ResourceQuota` does.

    A resource without a limit in one of the containers is left out: the pod has no limit either.
    A malformed quantity counts as no limit.
    """
    containers = spec.get("containers") or ()
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    container_limits = [
        amounts((c.get("resources") or {}).get("limits")) for c in (*containers, *sidecars)
    ]
    named = amounts((spec.get("resources") or {}).get("limits"))
    whole = (
        set.intersection(*(set(resources) for resources in container_limits))
        if container_limits
        else set()
    )
    total = {name: sum(resources[name] for resources in container_limits) for name in whole}
    return total | {name: limit for name, limit in named.items() if name in _POD_LEVEL}


def constraints(spec: Mapping[str, Any]) -> Constraints:
    """The node selector, required node affinity and tolerations of a pod of this spec."""
    affinity = spec.get("affinity")
    required = None
    if affinity:
        required = (affinity.get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
    return _constraints(orjson.dumps((spec.get("nodeSelector"), required, spec.get("tolerations"))))


def only_resources(spec: Mapping[str, Any]) -> bool:
    """Whether a pod of this spec asks kube-scheduler for resources and nodes only.

    Claims, host ports, required affinity to pods or anti-affinity, and spreading with DoNotSchedule
    are reasons to stay pending that freed capacity does not end.
    """
    affinity = spec.get("affinity") or {}
    return not (
        spec.get("resourceClaims")
        or any(_is_claim(volume) for volume in spec.get("volumes") or ())
        or any(_has_required(affinity.get(kind)) for kind in ("podAffinity", "podAntiAffinity"))
        or any(
            spread.get("whenUnsatisfiable") == "DoNotSchedule"
            for spread in spec.get("topologySpreadConstraints") or ()
        )
        or any(
            port.get("hostPort")
            for container in spec.get("containers") or ()
            for port in container.get("ports") or ()
        )
    )


def _is_claim(volume: Mapping[str, Any]) -> bool:
    return "persistentVolumeClaim" in volume or "ephemeral" in volume


def _has_required(rule: Mapping[str, Any] | None) -> bool:
    return bool(rule and rule.get("requiredDuringSchedulingIgnoredDuringExecution"))


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Parses a map of quantities; malformed ones are left out, None is an empty map."""
    parsed: dict[str, int] = {}
    for name, text in (quantities or {}).items():
        with suppress(QuantityError):
            parsed[name] = quantity.parse(name, str(text))
    return parsed


@lru_cache(maxsize=_SHAPES)
def _requests(raw: bytes) -> Resources:
    containers, init, pod_level, overhead = orjson.loads(raw)
    total: dict[str, int] = {}
    for resources in containers:
        add(total, _requested(resources))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for resources, restart_policy in init:
        requested = _requested(resources)
        if restart_policy == "Always":
            add(total, requested)
            add(sidecars, requested)
            _raise_to(peak, sidecars)
        else:
            add(requested, sidecars)
            _raise_to(peak, requested)
    _raise_to(total, peak)
    _override(total, pod_level or {})
    add(total, amounts(overhead))
    total["pods"] = 1
    total.pop(TRAINER_RESOURCE, None)
    return _shared_amounts(tuple(sorted((n, a) for n, a in total.items() if a)))


@lru_cache(maxsize=_SHAPES)
def _shared_amounts(items: tuple[tuple[str, int], ...]) -> Resources:
    return dict(items)


def _requested(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """The requests of a core/v1 `ResourceRequirements`."""
    resources = resources or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _override(total: dict[str, int], pod_level: Mapping[str, Any]) -> None:
    """Pod-level requests replace the containers' sum; pod-level limits only fill gaps in it."""
    requested, limits = amounts(pod_level.get("requests")), amounts(pod_level.get("limits"))
    for name in (*requested, *limits):
        if name in _POD_LEVEL or name.startswith("hugepages-"):
            total[name] = requested[name] if name in requested else total.get(name, limits[name])


def _raise_to(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)


@lru_cache(maxsize=_SHAPES)
def _constraints(raw: bytes) -> Constraints:
    selector, required, tolerations = orjson.loads(raw)
    pod_constraints = Constraints(_terms(selector or {}, required), _tolerations(tolerations or ()))
    return ANYWHERE if pod_constraints == ANYWHERE else _shared_constraints(pod_constraints)


@lru_cache(maxsize=_SHAPES)
def _shared_constraints(pod_constraints: Constraints) -> Constraints:
    return pod_constraints


def _terms(
    selector: Mapping[str, str], required: Mapping[str, Any] | None
) -> tuple[tuple[Requirement, ...], ...]:
    everywhere = tuple(Requirement(k, "In", (v,)) for k, v in sorted(selector.items()))
    if required is None:
        return (everywhere,) if everywhere else ()
    terms = tuple(_term(term) for term in required.get("nodeSelectorTerms") or ())
    return tuple(term + everywhere for term in terms if term) or (_NOWHERE,)


def _term(term: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """Converts a `NodeSelectorTerm`; an empty one has no requirements and matches no node."""
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
