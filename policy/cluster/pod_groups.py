"""Pods by what they belong to, and sums of requests by node; groups and sums without pods do not stay."""

from policy.cluster import amounts
from policy.cluster.snapshot import Pod


def remove(groups: dict[str, dict[str, Pod]], key: str, uid: str) -> None:
    """Removes a pod from a group, and the group with its last pod."""
    group = groups.get(key)
    if group is not None and group.pop(uid, None) is not None and not group:
        del groups[key]


def subtract(sums: dict[str, dict[str, int]], pod: Pod) -> None:
    """Subtracts a pod's requests from its node's sum, and removes a sum of 0."""
    total = sums.setdefault(pod.node, {})
    amounts.subtract(total, pod.requests)
    if not any(total.values()):
        del sums[pod.node]
