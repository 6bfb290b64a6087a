"""EDL with an unmodified scheduler, whose configuration has no extender."""

from collections.abc import Callable, Iterator

import pytest

from e2e.environment import (
    NODE_COUNT,
    SLOTS,
    Environment,
    IsolatedNamespace,
    running_environment,
)
from e2e.scheduling import SchedulingMode
from e2e.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

_GROW_S = 30.0
_BURST_S = 20.0


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A cluster whose scheduler knows nothing of EDL."""
    directory = tmp_path_factory.mktemp("no-extender")
    with running_environment(directory, SchedulingMode.WITHOUT_EXTENDER) as cluster_environment:
        yield cluster_environment


def _planned(namespace: IsolatedNamespace, job: str) -> float:
    """Returns the share of a job's trainers that run on the node of the plan."""
    trainers = namespace.trainers(job)
    return sum(pod.node == pod.planned for pod in trainers) / len(trainers)


def test_a_job_starts_grows_gives_room_and_grows_again(
    namespace: IsolatedNamespace, report: Callable[[str], None]
) -> None:
    """Release ahead and priorities alone are enough; no trainer requests the marker."""
    namespace.submit("net", low=2, high=SLOTS)
    namespace.wait_running("net", SLOTS, _GROW_S)
    planned = _planned(namespace, "net")
    burst_s = 0.0
    for services in (2 * NODE_COUNT, 3 * NODE_COUNT):
        namespace.services(services)
        burst_s = max(burst_s, namespace.wait_services(services, _BURST_S))
    until("the minimum runs", lambda: namespace.running("net"), lambda n: n >= 2, _GROW_S)
    left = namespace.running("net")
    namespace.services(0)
    namespace.wait_running("net", SLOTS, _GROW_S)
    ever = [pod for pod in namespace.environment.pods.ever(namespace.name) if pod.role]
    report(f"{planned:.0%} of {SLOTS} on the planned node, bursts within {burst_s:.1f} s")

    assert left < SLOTS
    assert planned > 0.5
    assert not any(pod.marked for pod in ever)
    namespace.wait_exact("net")
