"""Node affinity of trainer pods."""

from collections.abc import Collection
from typing import Any

from policy.node_failures import NODE_NAME


def avoid_nodes(spec: dict[str, Any], names: Collection[str]) -> None:
    """Requires in a pod spec, which it changes, that the pod runs on none of the nodes.

    kube-scheduler then neither places it there nor preempts for it there. core/v1 allows one name
    in a requirement of `matchFields`. Terms are alternatives, so each of them gets the requirements;
    an empty one matches no node and must stay empty.
    """
    if not names:
        return
    affinity = spec["affinity"] = dict(spec.get("affinity") or {})
    node_affinity = affinity["nodeAffinity"] = dict(affinity.get("nodeAffinity") or {})
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    fields = [{"key": NODE_NAME, "operator": "NotIn", "values": [name]} for name in sorted(names)]
    terms: list[dict[str, Any]] = [{"matchFields": fields}]
    if required is not None:
        terms = [
            {**term, "matchFields": [*(term.get("matchFields") or ()), *fields]} if term else term
            for term in required.get("nodeSelectorTerms") or ()
        ]
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
