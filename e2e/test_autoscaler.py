"""A pool of no nodes that Karpenter extends for jobs, on a real control plane with EDL beside it."""

import time
from collections.abc import Callable, Iterator

import pytest

from e2e import workload
from e2e.autoscaler import Autoscaler, karpenter
from e2e.control_plane import EdlControlPlane
from e2e.environment import Environment, IsolatedNamespace, edl_environment, isolated_namespace
from e2e.waiting import until
from kube import decode, request
from kube.request import NODES, PRIORITYCLASSES
from policy.cluster.snapshot import Phase, Pod
from policy.names import Tier
from reconciler.jobs.status import WAITING
from runtime import clock

pytestmark = [pytest.mark.autoscaler, pytest.mark.timeout(1800)]  # the first run builds Karpenter

_CPU = 18
_SLOTS = 3
"""Trainers of 5 CPU that a node takes."""
_POLICY = """
reserve: {maxLoad: {cpu: 1}}
autoscaling:
  mode: pendingPods
  afterSeconds: 3
  timeoutSeconds: 600
  vacate: {karpenter.sh/nodepool: "*"}
  vacateAfterSeconds: 5
"""
_GROWS_S, _DRAINS_S, _QUIET_S = 90.0, 120.0, 20.0


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A cluster without any node."""
    directory = tmp_path_factory.mktemp("autoscaled")
    with edl_environment(directory, EdlControlPlane(directory)) as environment:
        environment.send(request.create(PRIORITYCLASSES, None, workload.service_class()))
        environment.set_policy(_POLICY)
        yield environment


@pytest.fixture(scope="module")
def autoscaler(
    environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Autoscaler]:
    """Karpenter there."""
    with karpenter(environment, tmp_path_factory.mktemp("karpenter"), _CPU) as running:
        yield running


@pytest.fixture
def namespace(environment: Environment) -> Iterator[IsolatedNamespace]:
    """A namespace of the test's own."""
    with isolated_namespace(environment, "autoscaled") as isolated:
        yield isolated


def _guaranteed(namespace: IsolatedNamespace, job: str) -> list[Pod]:
    """Guaranteed trainers that run and are not being deleted."""
    pods = namespace.trainers(job)
    return [pod for pod in pods if pod.tier is Tier.GUARANTEED and pod.phase is Phase.RUNNING]


def _waiting(namespace: IsolatedNamespace, job: str) -> str:
    """Returns the reason of the job's Waiting condition."""
    conditions = {c.type: c for c in namespace.job(job).status.conditions}
    return conditions[WAITING].reason if WAITING in conditions else ""


def _nodes(environment: Environment) -> dict[str, bool]:
    """Node -> whether Karpenter is draining it."""
    page = environment.send(request.list_page(NODES, limit=0))
    nodes = [decode.node(item) for item in page["items"]]
    return {n.name: any(t.key == "karpenter.sh/disrupted" for t in n.taints) for n in nodes}


def test_a_job_brings_its_nodes_and_takes_them_along(
    environment: Environment,
    autoscaler: Autoscaler,
    namespace: IsolatedNamespace,
    report: Callable[[str], None],
) -> None:
    """From zero nodes to its minimum, through a drain with its budget kept, back to zero.

    Surplus fills the nodes that come, adds none, and keeps none, from a drain or for itself.
    """
    low = 4
    begun_s = clock.monotonic_s()
    namespace.submit("net", low=low, high=20)

    until(
        "its minimum runs", lambda: len(_guaranteed(namespace, "net")), lambda n: n == low, _GROWS_S
    )
    report(f"from no node to a minimum of {low}: {clock.monotonic_s() - begun_s:.1f} s")
    filled = 2 * _SLOTS
    until("surplus fills them", lambda: namespace.running("net"), lambda n: n == filled, _GROWS_S)
    until("it says so", lambda: _waiting(namespace, "net"), lambda w: w == "Started", _GROWS_S)

    time.sleep(_QUIET_S)
    assert len(autoscaler.node_claims()) == 2, "surplus added a node"
    assert namespace.running("net") == filled

    # A drain by Karpenter's taint.
    before = set(_nodes(environment))
    victim = autoscaler.node_claims()[0]
    drain_s = clock.monotonic_s()
    autoscaler.give_back(victim)
    least = low

    def drained() -> bool:
        nonlocal least
        least = min(least, len(_guaranteed(namespace, "net")))
        return (
            victim not in autoscaler.node_claims() and len(before & set(_nodes(environment))) == 1
        )

    until("the node is drained and gone", drained, bool, _DRAINS_S)
    report(f"a drained node is gone after {clock.monotonic_s() - drain_s:.1f} s")
    report(f"guaranteed trainers meanwhile: at least {least} of {low}")
    assert least == low
    assert namespace.job("net").accounting.failed == 0

    # The job ends, and its nodes go, but for the one that another job's minimum needs.
    namespace.submit("other", low=1, high=20)
    until("it starts", lambda: len(_guaranteed(namespace, "other")), lambda n: n == 1, _GROWS_S)
    ended_s = clock.monotonic_s()
    namespace.environment.send(request.delete(request.JOBS, namespace.name, "net"))
    until("one node is left", lambda: _nodes(environment), lambda nodes: len(nodes) == 1, _DRAINS_S)
    report(f"nodes that surplus alone used are gone {clock.monotonic_s() - ended_s:.1f} s later")
    until("it is filled", lambda: namespace.running("other"), lambda n: n == _SLOTS, _GROWS_S)
    until("in its place", lambda: len(_guaranteed(namespace, "other")), lambda n: n == 1, _GROWS_S)
    ended_s = clock.monotonic_s()
    namespace.environment.send(request.delete(request.JOBS, namespace.name, "other"))
    until("no node is left", lambda: _nodes(environment), lambda nodes: not nodes, _DRAINS_S)
    report(f"no node {clock.monotonic_s() - ended_s:.1f} s after its end")
