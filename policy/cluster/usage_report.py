"""Capacity of the nodes and requests of training and services, as figures and as one line."""

from collections.abc import Mapping

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Resources

CPU, MEMORY = "cpu", "memory"
_NO_DEVICES = (CPU, MEMORY, "pods", "ephemeral-storage")
_MAX_DEVICES = 8
"""Largest number of extended resources that are exported: nodes may report any number of them."""
MILLI = 1000


def uses(cluster: ClusterState) -> Mapping[str, Resources]:
    """Returns use -> amounts: the capacity of the nodes, and the requests of bound pods."""
    return {
        "allocatable": cluster.allocatable,
        "training": cluster.usage.training,
        "services": cluster.usage.services,
    }


def devices(cluster: ClusterState) -> list[str]:
    """Returns the nodes' extended resources (not CPU, memory and the like); only the first by name."""
    names = (
        name
        for name, amount in cluster.allocatable.items()
        if amount > 0 and name not in _NO_DEVICES and not name.startswith("hugepages-")
    )
    return sorted(names)[:_MAX_DEVICES]


def usage_line(cluster: ClusterState) -> str:
    """Returns the cluster's resources and the requests of training and services in one line."""
    parts = [f"{len(cluster.nodes)} nodes"]
    for title, name, unit, suffix in (
        ("CPU", CPU, MILLI, "cores"),
        ("memory", MEMORY, 1 << 30, "GiB"),
        *((device, device, 1, "") for device in devices(cluster)),
    ):
        amounts = {use: of.get(name, 0) / unit for use, of in uses(cluster).items()}
        total = f"{amounts['allocatable']:.6g} {suffix}".rstrip()
        shares = f"training {amounts['training']:.6g}, services {amounts['services']:.6g}"
        parts.append(f"{title} {total} ({shares})")
    return "; ".join(parts)
