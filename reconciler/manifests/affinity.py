"""Node affinity of trainer pods: avoided nodes, the policy's node pools, the planned node. Pure."""

from collections.abc import Collection
from typing import Any

from policy.document.model import NodePool
from policy.names import NODE_NAME

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT = 100
"""The largest that the API allows: no preference of the template outweighs the plan."""


def avoid_nodes(spec: dict[str, Any], names: Collection[str]) -> None:
    """Requires in a pod spec, which it changes, that the pod runs on none of the nodes.

    kube-scheduler then neither places it there nor preempts for it there. core/v1 allows one name
    in a requirement of `matchFields`. Terms are alternatives, so each of them gets the requirements;
    an empty one matches no node and must stay empty.
    """
    if not names:
        return
    fields = [{"key": NODE_NAME, "operator": "NotIn", "values": [name]} for name in sorted(names)]
    _require(spec, "matchFields", [fields])


def require_pools(spec: dict[str, Any], pools: Collection[NodePool]) -> None:
    """Requires in a pod spec, which it changes, that the pod runs on a node of one of the pools.

    Each term of the spec is repeated for each pool. A pool without labels has all nodes.
    """
    if all(pool.labels for pool in pools):
        _require(spec, "matchExpressions", [_label_requirements(pool) for pool in pools])


def prefer_node(spec: dict[str, Any], name: str) -> None:
    """Adds to a pod spec, which it changes, a preference for a node besides those that it has."""
    named_node = {"key": NODE_NAME, "operator": "In", "values": [name]}
    node_affinity = _node_affinity(spec)
    node_affinity[_PREFERRED] = [
        *(node_affinity.get(_PREFERRED) or ()),
        {"weight": _WEIGHT, "preference": {"matchFields": [named_node]}},
    ]


def _node_affinity(spec: dict[str, Any]) -> dict[str, Any]:
    """The node affinity of a pod spec, copied into it so that a shared template stays as it is."""
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
    """Requires one of the lists of requirements besides what the spec requires already.

    Args:
        spec: The pod spec, which is changed; without choices it is not.
        field: matchFields or matchExpressions.
        choices: Alternatives, each a conjunction.
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
