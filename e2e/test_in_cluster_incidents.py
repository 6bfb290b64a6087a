"""Incidents of EDL where it runs in a cluster: its servers are replaced, and one of its nodes is lost, in a burst.

EDL's pods are on two real nodes, and the load on nodes that kwok plays. For `make faults`.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from e2e import workload
from e2e.cluster.nodes import node
from e2e.environment import (
    NODE_COUNT,
    SLOTS,
    Environment,
    IsolatedNamespace,
    isolated_namespace,
)
from e2e.faults import fill, live_ids
from e2e.in_cluster import (
    COMPONENTS,
    SLEEP,
    BareCluster,
    edl_beside_played_nodes,
    elastic_job,
    installed,
    is_busy,
    is_refused,
)
from e2e.waiting import until
from kube import request
from kube.request import JOBS, LEASES, NODES, PODS
from policy.names import SYSTEM_NAMESPACE
from reconciler.app import LEASE
from runtime import clock

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

SERVICES = 40
IN_TIME_S = 60.0
BACK_S = 90.0
LEADS_S = 60.0
SLOWER = 1.5
Printer = Callable[[str], None]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareCluster]:
    """EDL on two real nodes."""
    directory = tmp_path_factory.mktemp("incidents")
    with edl_beside_played_nodes(directory, real_nodes=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def environment(bare: BareCluster) -> Iterator[Environment]:
    """Played nodes for the load."""
    with installed(bare) as prepared:
        prepared.send(request.create(request.PRIORITYCLASSES, None, workload.service_class()))
        for number in range(NODE_COUNT):
            prepared.send(request.create(NODES, None, node(f"node-{number:03}")))
        yield prepared


def _burst(namespace: IsolatedNamespace, meanwhile: Callable[[], object] = lambda: None) -> float:
    """Seconds until the services of a burst run; afterwards the jobs have the room again."""
    namespace.services(SERVICES)
    meanwhile()
    took_s = namespace.wait_services(SERVICES, IN_TIME_S)
    ids = live_ids(namespace)
    assert len(ids) == len(set(ids))
    namespace.services(0)
    until(
        "the jobs share the cluster again",
        lambda: namespace.running("one") + namespace.running("two"),
        lambda count: count == SLOTS,
        BACK_S,
    )
    return took_s


def _admissions(environment: Environment, name: str, updating: Future[None]) -> tuple[int, int]:
    """(accepted, refused) of wrong Jobs until the update is done."""
    wrong = dict(elastic_job("wrong", 4, 2, "100m", SLEEP))
    create = replace(request.create(JOBS, name, wrong), query=(("dryRun", "All"),))
    results = []
    while not updating.done():
        results.append(is_refused(environment, create))
        time.sleep(0.1)
    return results.count(False), results.count(True)


def test_all_servers_are_replaced_in_a_burst(
    bare: BareCluster, environment: Environment, report: Printer
) -> None:
    """No admission is missed, services wait hardly longer, and no trainer is made twice or lost."""
    with isolated_namespace(environment, "update") as namespace, ThreadPoolExecutor(2) as pool:
        fill(namespace, "one", "two")
        undisturbed_s = _burst(namespace)
        machine_is_busy = is_busy()
        updating = pool.submit(bare.restart, *COMPONENTS)
        reviews = pool.submit(_admissions, environment, namespace.name, updating)
        bursts_s = [_burst(namespace)]
        while not updating.done():
            bursts_s.append(_burst(namespace))
        updating.result()
        accepted, refused = reviews.result()
        for job in ("one", "two"):
            assert namespace.wait_exact(job).status.failed == 0
        longest_s = max(bursts_s)
        report(
            f"{SERVICES} services run after {undisturbed_s:.1f} s, and in {len(bursts_s)} bursts while"
            f" all servers are replaced after at most {longest_s:.1f} s ({longest_s / undisturbed_s:.2f} x);"
            f" {refused} reviews, {accepted} missed"
        )

        assert accepted == 0
        assert refused > 10
        assert longest_s <= SLOWER * undisturbed_s or machine_is_busy


def _leader(environment: Environment) -> str:
    """The name of the pod that leads; its identity has a few letters more."""
    lease = environment.send(request.get(LEASES, SYSTEM_NAMESPACE, LEASE))
    return str(lease["spec"]["holderIdentity"]).rpartition("-")[0]


def test_the_leaders_node_is_lost_in_a_burst(
    bare: BareCluster, environment: Environment, report: Printer
) -> None:
    """Services run in time; the other replica leads, and all servers are back when the node is deleted."""
    with isolated_namespace(environment, "node") as namespace:
        fill(namespace, "one", "two")
        leader = _leader(environment)
        where = environment.send(request.get(PODS, SYSTEM_NAMESPACE, leader))["spec"]["nodeName"]
        on_it = {
            pod.name
            for pod in environment.pods.now(SYSTEM_NAMESPACE)
            if pod.node == where and pod.name.startswith("edl-")
        }
        begun_s = clock.monotonic_s()

        def lose() -> None:
            bare.cluster.real_nodes[where].kill()
            environment.declare_lost(where)
            until("another leads", lambda: _leader(environment), lambda n: n != leader, LEADS_S)

        took_s = _burst(namespace, lose)
        leads_s = clock.monotonic_s() - begun_s
        bare.kubectl("delete", "node", where)
        bare.wait_available()
        for job in ("one", "two"):
            assert namespace.wait_exact(job).status.failed == 0
        report(
            f"a node with {', '.join(sorted(on_it))} is lost: {SERVICES} services run {took_s:.1f} s"
            f" after another reconciler leads; all is back after {leads_s:.0f} s"
        )
