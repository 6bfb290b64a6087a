"""Incidents of EDL where it runs in a cluster: its servers are replaced, and one of its nodes is lost, in a burst.

EDL's pods are on two real nodes, and the load on nodes that kwok plays. For `make faults`.
"""

from collections.abc import Callable, Iterator

import pytest

from e2e.environment import Environment, isolated_namespace, played_nodes, send_nodes
from e2e.faults import fill
from e2e.in_cluster import COMPONENTS, BareCluster, edl_beside_played_nodes, installed, is_busy
from e2e.real_nodes import skip_unless_able
from e2e.rollout import IN_TIME_S, SERVICES, TWO_JOBS, burst, bursts_during
from e2e.waiting import until
from kube import request
from kube.request import LEASES, PODS
from policy.names import SYSTEM_NAMESPACE
from reconciler.app import LEASE
from runtime import clock

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

LEADS_S = 60.0
SLOWER = 1.5
Printer = Callable[[str], None]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareCluster]:
    """EDL on two real nodes."""
    skip_unless_able()
    directory = tmp_path_factory.mktemp("incidents")
    with edl_beside_played_nodes(directory, real_nodes=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def environment(bare: BareCluster) -> Iterator[Environment]:
    """Played nodes for the load."""
    with installed(bare) as prepared:
        send_nodes(prepared, played_nodes())
        yield prepared


def test_all_servers_are_replaced_in_a_burst(
    bare: BareCluster, environment: Environment, report: Printer
) -> None:
    """No admission is missed, services wait hardly longer, and no trainer is made twice or lost."""
    with isolated_namespace(environment, "update") as namespace:
        fill(namespace, *TWO_JOBS.jobs)
        undisturbed_s = burst(namespace)
        machine_is_busy = is_busy()
        update = bursts_during(namespace, lambda: bare.restart(*COMPONENTS))
        for job in TWO_JOBS.jobs:
            assert namespace.wait_exact(job).status.failed == 0
        longest_s = max(update.bursts_s)
        report(
            f"{SERVICES} services run after {undisturbed_s:.1f} s, and in {len(update.bursts_s)} bursts while"
            f" all servers are replaced after at most {longest_s:.1f} s ({longest_s / undisturbed_s:.2f} x);"
            f" {update.refused} reviews, {update.accepted} missed"
        )

        assert update.accepted == 0
        assert update.refused > 10
        assert longest_s <= SLOWER * undisturbed_s or machine_is_busy


def _leader(environment: Environment) -> str:
    """Returns the name of the pod that leads; its identity has a few letters more."""
    lease = environment.send(request.get(LEASES, SYSTEM_NAMESPACE, LEASE))
    return str(lease["spec"].get("holderIdentity", "")).rpartition("-")[0]


def _server(pod: str) -> str:
    """Returns the name of a pod's Deployment."""
    return pod.rsplit("-", 2)[0]


def test_the_leaders_node_is_lost_in_a_burst(
    bare: BareCluster, environment: Environment, report: Printer
) -> None:
    """Services run in time; the other replica leads, and all servers are back when the node is deleted."""
    with isolated_namespace(environment, "node") as namespace:
        fill(namespace, *TWO_JOBS.jobs)
        leader = _leader(environment)
        where = environment.send(request.get(PODS, SYSTEM_NAMESPACE, leader))["spec"]["nodeName"]
        servers = [
            pod
            for pod in environment.pods.now(SYSTEM_NAMESPACE)
            if pod.name.startswith("edl-") and not pod.deleting
        ]
        on_it = {pod.name for pod in servers if pod.node == where}
        beside = {_server(pod.name) for pod in servers if pod.node != where}
        assert {"edl-webhook", "edl-reconciler"} <= beside, "a node has both replicas of a server"
        seconds: dict[str, float] = {}

        def lose() -> None:
            bare.cluster.real_nodes[where].kill()
            environment.declare_lost(where)
            begun_s = clock.monotonic_s()
            seconds["services"] = namespace.wait_services(SERVICES, IN_TIME_S)
            until(
                "another leads",
                lambda: _leader(environment),
                lambda name: name not in ("", leader),
                LEADS_S,
            )
            seconds["leader"] = clock.monotonic_s() - begun_s

        begun_s = clock.monotonic_s()
        burst(namespace, meanwhile=lose)
        full_s = clock.monotonic_s() - begun_s
        bare.kubectl("delete", "node", where)
        bare.wait_available()
        for job in TWO_JOBS.jobs:
            assert namespace.wait_exact(job).status.failed == 0
        report(
            f"a node with {', '.join(sorted(on_it))} is lost: {SERVICES} services run {seconds['services']:.1f} s"
            f" later, another reconciler leads after {seconds['leader']:.0f} s at most, and the jobs have their"
            f" room again {full_s:.0f} s after the loss"
        )
