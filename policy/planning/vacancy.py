"""Nodes that run nothing but surplus trainers, which an autoscaler should be able to remove. Pure."""

from policy.cluster.cluster_state import ClusterState
from policy.cluster.live_trainers import is_surplus
from policy.cluster.snapshot import Pod
from policy.document.model import Policy
from policy.document.model_fields import labels_match
from policy.planning.plan import History


def unneeded_nodes(cluster: ClusterState, policy: Policy) -> frozenset[str]:
    """Returns nodes with the labels in `autoscaling.vacate` that run nothing but surplus, or nothing at all.

    Some pods do not keep a node: pods bound to it by name, such as a DaemonSet's pods, and pods that are
    being deleted.
    """
    labels = policy.autoscaling.vacate
    if not labels:
        return frozenset()
    return frozenset(
        name
        for name, node in cluster.nodes.items()
        if labels_match(node.labels, labels)
        and all(_needs_none(pod) for pod in cluster.bound.get(name, {}).values())
    )


def closed_nodes(
    cluster: ClusterState, policy: Policy, history: History, now_s: float
) -> frozenset[str]:
    """Returns the nodes that get no surplus now: unneeded nodes, and nodes that just gave capacity back."""
    cooling = (node for node, until_s in history.cooling.items() if until_s > now_s)
    return unneeded_nodes(cluster, policy).union(cooling)


def _needs_none(pod: Pod) -> bool:
    return is_surplus(pod) or pod.deleting or bool(pod.constraints.only_node)
