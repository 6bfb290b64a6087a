"""The jobs of the demo on a kube-scheduler without the extender, in virtual time: what the load of a machine cannot blur."""

from collections import Counter

import pytest

from e2e.experiments.virtual import workload_of
from e2e.workload import FULL
from policy.names import Role
from simulator.run import play
from simulator.workload import Arrival, Workload
from tests.support.builders import service

pytestmark = [pytest.mark.soak, pytest.mark.timeout(180)]


def _killed_and_needed(*, extender: bool) -> tuple[int, int]:
    """Trainers stopped while the jobs share what 400 services leave, and the least that their shares at the end need.

    That is each job's highest number less its last one, as `e2e.measure.kills` counts it.
    """
    base = workload_of(FULL)
    web = [
        service(f"web-{number}", 3, memory=3, priority=100) for number in range(FULL.services[0])
    ]
    arrivals = (base.arrivals[0], Arrival(2.0, tuple(web)), *base.arrivals[1:])
    end_s = base.arrivals[-1].at_s + FULL.step_s
    counts, most = Counter[str](), Counter[str]()
    killed = 0
    for change in play(Workload(base.nodes, arrivals, end_s), extender=extender):
        old, pod = change.old, change.pod
        if pod.role is not Role.TRAINER or not pod.node or change.deleted or old is None:
            continue
        if pod.deleting and not old.deleting:
            counts[pod.job] -= 1
            killed += 1
        elif not old.node:
            counts[pod.job] += 1
            most[pod.job] = max(most[pod.job], counts[pod.job])
    return killed, sum((most - counts).values())


@pytest.mark.parametrize("extender", [True, False])
def test_a_newcomers_trainers_are_not_stopped_for_the_next_one(*, extender: bool) -> None:
    """Nobody is stopped who has to be started again: without the extender neither, by the second class of surplus."""
    killed, needed = _killed_and_needed(extender=extender)

    assert 0 < needed <= killed <= needed + 2
