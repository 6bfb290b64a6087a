"""What a pod asks of a node, read from its spec the way kube-scheduler reads it.

Pure. Source: k8s.io/component-helpers `resource.PodRequests`, k8s.io/component-helpers
`nodeaffinity`. Thousands of pods come from a few templates, so both answers are remembered by
the raw JSON they were read from and shared between all pods that look alike: that saves the
time as well as the memory.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from policy import quantity
from policy.errors import QuantityError
from policy.names import TRAINER_RESOURCE
from policy.snapshot import ANYWHERE, Constraints, Requirement, Resources, Toleration

_SHAPES = 4096
"""Different shapes of pods remembered at once."""
_POD_LEVEL = ("cpu", "memory")
_NOWHERE = (Requirement("metadata.name", "In", ()),)
"""A term that no node matches: what upstream makes of a selector with empty terms only."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """Resource name -> amount, and how many of the quantities could not be read."""

    resources: Resources
    malformed: int = 0


def requests(spec: Mapping[str, Any]) -> Amounts:
    """What the scheduler counts for a pod of this spec: containers, sidecars, overhead, "pods".

    Limits stand in for missing requests, as the API server's defaults do. EDL's marker resource
    is left out (`ignoredByScheduler`). A quantity that cannot be read counts as 0.
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
    """What a pod of this spec may use at most, added up as core/v1 `ResourceQuota` does.

    A resource that one container has no limit for is left out: the pod has none either.
    A quantity that cannot be read counts as no limit.
    """
    containers = spec.get("containers") or ()
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    each = [
        amounts((c.get("resources") or {}).get("limits") or {}).resources
        for c in (*containers, *sidecars)
    ]
    named = amounts((spec.get("resources") or {}).get("limits") or {}).resources
    whole = set.intersection(*(set(found) for found in each)) if each else set()
    total = {name: sum(found[name] for found in each) for name in whole}
    return total | {name: most for name, most in named.items() if name in _POD_LEVEL}


def constraints(spec: Mapping[str, Any]) -> Constraints:
    """Node selector, required node affinity and tolerations of a pod of this spec."""
    affinity = spec.get("affinity")
    required = None
    if affinity:
        required = (affinity.get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
    return _constraints(orjson.dumps((spec.get("nodeSelector"), required, spec.get("tolerations"))))


def amounts(quantities: Mapping[str, Any]) -> Amounts:
    """A whole map of quantities; what cannot be read counts as 0."""
    found: dict[str, int] = {}
    malformed = 0
    for name, text in quantities.items():
        try:
            found[name] = quantity.parse(name, str(text))
        except QuantityError:
            malformed += 1
    return Amounts(found, malformed)


@lru_cache(maxsize=_SHAPES)
def _requests(raw: bytes) -> Amounts:
    containers, init, pod_level, overhead = orjson.loads(raw)
    counter = _Counter()
    total: dict[str, int] = {}
    for resources in containers:
        _add(total, counter.asked(resources))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for resources, restart_policy in init:
        asked = counter.asked(resources)
        if restart_policy == "Always":
            _add(total, asked)
            _add(sidecars, asked)
            _raise_to(peak, sidecars)
        else:
            _add(asked, sidecars)
            _raise_to(peak, asked)
    _raise_to(total, peak)
    _override(total, counter, pod_level or {})
    _add(total, counter.read(overhead))
    total["pods"] = 1
    total.pop(TRAINER_RESOURCE, None)
    shared = _shared_amounts(tuple(sorted((n, a) for n, a in total.items() if a)))
    return Amounts(shared, counter.malformed)


@lru_cache(maxsize=_SHAPES)
def _shared_amounts(items: tuple[tuple[str, int], ...]) -> Resources:
    return dict(items)


class _Counter:
    """Reads quantity maps and counts what cannot be read."""

    def __init__(self) -> None:
        self.malformed = 0

    def read(self, quantities: Mapping[str, Any] | None) -> dict[str, int]:
        """A map of quantities; None is empty."""
        read = amounts(quantities or {})
        self.malformed += read.malformed
        return dict(read.resources)

    def asked(self, resources: Mapping[str, Any] | None) -> dict[str, int]:
        """What a core/v1 `ResourceRequirements` asks for."""
        resources = resources or {}
        return self.read({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _override(total: dict[str, int], counter: _Counter, pod_level: Mapping[str, Any]) -> None:
    """Pod-level requests replace the containers' sum; pod-level limits only fill a gap in it."""
    requested = counter.read(pod_level.get("requests"))
    limits = counter.read(pod_level.get("limits"))
    for name in (*requested, *limits):
        if name in _POD_LEVEL or name.startswith("hugepages-"):
            total[name] = requested[name] if name in requested else total.get(name, limits[name])


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)


@lru_cache(maxsize=_SHAPES)
def _constraints(raw: bytes) -> Constraints:
    selector, required, tolerations = orjson.loads(raw)
    found = Constraints(_terms(selector or {}, required), _tolerations(tolerations or ()))
    return ANYWHERE if found == ANYWHERE else _shared_constraints(found)


@lru_cache(maxsize=_SHAPES)
def _shared_constraints(found: Constraints) -> Constraints:
    return found


def _terms(
    selector: Mapping[str, str], required: Mapping[str, Any] | None
) -> tuple[tuple[Requirement, ...], ...]:
    everywhere = tuple(Requirement(k, "In", (v,)) for k, v in sorted(selector.items()))
    if required is None:
        return (everywhere,) if everywhere else ()
    terms = tuple(_term(term) for term in required.get("nodeSelectorTerms") or ())
    return tuple(term + everywhere for term in terms if term) or (_NOWHERE,)


def _term(term: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """One `NodeSelectorTerm`; empty if it has no requirements, and then it matches no node."""
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
