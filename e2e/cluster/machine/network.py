"""Where real nodes and their pods live: one /16 per cluster, found free and held. Linux.

Every node has a network namespace and one link to this machine's own, which routes between
them, and to the cluster's Services through a node. Nothing is bridged or translated here, no global setting is changed, and the kernel
removes link and routes together with the namespace.
"""

import ipaddress
import json
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from e2e.cluster.errors import ClusterError

MAX_NODES = 60
_CLUSTERS = 64
_FIRST = 128  # 10.128.0.0/16 to 10.191.0.0/16
_SERVICES = 254
_DNS = 10
_ASK_S = 10.0


@dataclass(frozen=True, slots=True)
class Link:
    """One node's addresses.

    Attributes:
        device: The link's end on this machine.
        gateway: That end's address, the same for all nodes of a cluster, so that it stays when
            a node goes; where nodes and pods find the API server.
        address: The node's own.
        pods: Its pods' range.
    """

    device: str
    gateway: str
    address: str
    pods: str
    services: str
    """The cluster's range of Services, which each node's kube-proxy serves."""
    rank: int
    """Of several nodes that run, the lowest takes this machine's calls to Services."""


def service_address(cluster: int, host: int) -> str:
    """An address of the range of Services of the cluster that holds this number."""
    return f"10.{_FIRST + cluster}.{_SERVICES}.{host}"


def link(cluster: int, node: int) -> Link:
    """The addresses of a node (1 to `MAX_NODES`) of the cluster that holds this number."""
    net = f"10.{_FIRST + cluster}"
    return Link(
        device=f"edl{cluster}-{node}",
        gateway=f"{net}.255.1",
        address=f"{net}.255.{node + 1}",
        pods=f"{net}.{node}.0/24",
        services=f"{service_address(cluster, 0)}/24",
        rank=node,
    )


class Network:
    """A range that no other cluster on this machine uses; held until `release`."""

    def __init__(self, number: int, holder: socket.socket) -> None:
        """Made by `claim`."""
        self.number = number
        self._holder = holder

    @classmethod
    def claim(cls) -> Self:
        """The first range that is free.

        Raises:
            ClusterError: none is.
        """
        routed_networks = _routed()
        for number in range(_CLUSTERS):
            if any(_range(number).overlaps(net) for net in routed_networks):
                continue
            holder = socket.socket(socket.AF_UNIX)
            try:
                # An abstract name is held by its process, and free again when that ends.
                holder.bind(f"\0edl-e2e-network-{number}")
            except OSError:
                holder.close()
                continue
            return cls(number, holder)
        raise ClusterError(
            f"no range of 10.{_FIRST}.0.0 to 10.{_FIRST + _CLUSTERS - 1}.0.0 is free for real "
            "nodes; stop other clusters (`python -m e2e.cluster down`)"
        )

    def release(self) -> None:
        """Lets others have it."""
        self._holder.close()

    def link(self, node: int) -> Link:
        """See `link`."""
        return link(self.number, node)

    @property
    def api_service(self) -> str:
        """The address of the Service `kubernetes`, the first of the range."""
        return service_address(self.number, 1)

    @property
    def dns_service(self) -> str:
        """The address that pods ask for names, where the cluster has a DNS."""
        return service_address(self.number, _DNS)


def connect(ends: Link, pid: int) -> None:
    """Links the network namespace of process `pid` (as `eth0`) with this machine's own.

    Raises:
        ClusterError: `ip` refused; says what.
    """
    if Path("/sys/class/net", ends.device).exists():  # of a node that just ended
        _ip("link", "delete", ends.device)
    _ip("link", "add", ends.device, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _ip("address", "add", ends.gateway, "peer", ends.address, "dev", ends.device)
    # Only what comes from a node is forwarded, so the machine's own setting stays as it is.
    Path(f"/proc/sys/net/ipv4/conf/{ends.device}/forwarding").write_text("1")
    _ip("link", "set", ends.device, "up")
    _ip("route", "add", ends.pods, "via", ends.address, "dev", ends.device)
    # kube-apiserver and kube-scheduler run here, and call Services as on a node of kubeadm.
    rank = ("metric", str(ends.rank))
    _ip("route", "add", ends.services, "via", ends.address, "dev", ends.device, *rank)


def _range(number: int) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(f"10.{_FIRST + number}.0.0/16")


def _routed() -> list[ipaddress.IPv4Network]:
    """What this machine has routes to, but for the default route."""
    networks = []
    for route in json.loads(_ip("-json", "-4", "route", "show", "table", "all") or "[]"):
        with suppress(ValueError):  # "default", and names of special ranges
            networks.append(ipaddress.IPv4Network(route["dst"]))
    return [net for net in networks if net.prefixlen > 0]


def _ip(*words: str) -> str:
    command = ["ip", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, check=False)
    if done.returncode != 0:
        raise ClusterError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout
