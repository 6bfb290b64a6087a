import ipaddress
import shutil

import pytest

from e2e.cluster.components import SERVICE_RANGE
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import network
from e2e.cluster.machine.network import MAX_NODES, Network, connect, link


def test_no_two_nodes_share_an_address() -> None:
    """Neither in one cluster nor between clusters, nor with Services."""
    ends = [link(cluster, node) for cluster in (0, 63) for node in range(1, MAX_NODES + 1)]
    addresses = {ipaddress.IPv4Address(end.address) for end in ends}
    pods = [ipaddress.IPv4Network(end.pods) for end in ends]

    assert len(addresses) == len(set(pods)) == len(ends)
    assert len({end.device for end in ends}) == len(ends)
    assert not [net for net in pods if any(address in net for address in addresses)]
    assert not [net for net in pods if net.overlaps(ipaddress.IPv4Network(SERVICE_RANGE))]


def test_this_machine_has_one_address_for_all_nodes_of_a_cluster() -> None:
    """It must stay when any node goes; and a device's name fits into the kernel's 15 characters."""
    ends = [link(63, node) for node in range(1, MAX_NODES + 1)]

    assert len({end.gateway for end in ends}) == 1
    assert ends[0].gateway not in {end.address for end in ends}
    assert link(62, 1).gateway != ends[0].gateway
    assert max(len(end.device) for end in ends) <= 15


def test_services_have_a_range_of_their_own_in_each_cluster() -> None:
    """So that this machine's routes to those of two clusters do not meet; no node's pods are in it."""
    ends = [link(63, node) for node in range(1, MAX_NODES + 1)]

    assert {end.services for end in ends} == {"10.191.254.0/24"}
    assert link(62, 1).services == "10.190.254.0/24"
    assert ends[0].services not in {end.pods for end in ends}
    assert len({end.rank for end in ends}) == MAX_NODES


@pytest.mark.skipif(shutil.which("ip") is None, reason="needs iproute2")
def test_a_claimed_range_is_nobody_elses() -> None:
    """Until it is released, or its process ends."""
    first, second = Network.claim(), Network.claim()
    assert first.number != second.number
    assert first.link(2) == link(first.number, 2)
    first.release()
    third = Network.claim()
    for claimed in (second, third):
        claimed.release()

    assert third.number != second.number


@pytest.mark.skipif(shutil.which("ip") is None, reason="needs iproute2")
def test_what_ip_refuses_is_quoted() -> None:
    """The command and its own words."""
    with pytest.raises(ClusterError, match=r"^`ip link add edl99-1 .* failed: \S"):
        connect(
            network.Link("edl99-1", "10.0.0.1", "10.0.0.2", "10.0.1.0/24", "10.0.254.0/24", 1),
            1 << 30,
        )
