"""Node affinity of trainer pods: avoided nodes, the policy's node pools and the planned node. Pure."""

from collections.abc import Collection
from typing import Any

from policy.document.model import NodePool
from policy.names import NODE_NAME

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT = 100
"""The API's maximum, so that no preference of the template outweighs the plan."""


def avoid_nodes(spec: dict[str, Any], names: Collection[str]) -> None:
    """Changes a pod spec so that the pod runs on none of the given nodes.

    kube-scheduler then neither places the pod on these nodes nor preempts other pods there for it. core/v1
    allows one name per requirement of `matchFields`. Terms are alternatives, so the requirements are added to
    each term; an empty term matches no node and must stay empty.
    """
    if not names:
        return
    fields = [{"key": NODE_NAME, "operator": "NotIn", "values": [name]} for name in sorted(names)]
    _require(spec, "matchFields", [fields])


def require_pools(spec: dict[str, Any], pools: Collection[NodePool]) -> None:
    """Changes a pod spec so that the pod runs on a node in one of the pools.

    Each term of the spec is repeated for each pool. A pool without labels contains all nodes.
    """
    if all(pool.labels for pool in pools):
        _require(spec, "matchExpressions", [_label_requirements(pool) for pool in pools])


def prefer_node(spec: dict[str, Any], name: str) -> None:
    """Adds a preference for a node to a pod spec, in addition to its other preferences."""
    named_node = {"key": NODE_NAME, "operator": "In", "values": [name]}
    node_affinity = _node_affinity(spec)
    node_affinity[_PREFERRED] = [
        *(node_affinity.get(_PREFERRED) or ()),
        {"weight": _WEIGHT, "preference": {"matchFields": [named_node]}},
    ]


def _node_affinity(spec: dict[str, Any]) -> dict[str, Any]:
    """Returns the node affinity of a pod spec, first copied so that a shared template is not changed."""
    affinity = spec["affinity"] = dict(spec.get("affinity") or {})
    node_affinity: dict[str, Any] = dict(affinity.get("nodeAffinity") or {})
    affinity["nodeAffinity"] = node_affinity
    return node_affinity


def _label_requirements(pool: NodePool) -> list[dict[str, Any]]:
    return [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in sorted(pool.labels.items())
    ]


def _require(spec: dict[str, Any], field: str, choices: list[list[dict[str, Any]]]) -> None:
    """Adds alternative requirements to those that a pod spec already has.

    Args:
        spec: The pod spec to change; it stays as it is if `choices` is empty.
        field: matchFields or matchExpressions.
        choices: Alternatives; all requirements of one of them must match.
    """
    if not choices:
        return
    node_affinity = _node_affinity(spec)
    required = node_affinity.get(_REQUIRED)
    terms: list[dict[str, Any]] = [{field: requirements} for requirements in choices]
    if required is not None:
        terms = [
            {**term, field: [*(term.get(field) or ()), *requirements]} if term else term
            for term in required.get("nodeSelectorTerms") or ()
            for requirements in choices
        ]
    node_affinity[_REQUIRED] = {"nodeSelectorTerms": terms}
