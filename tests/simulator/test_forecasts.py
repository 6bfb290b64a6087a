"""Snapshots, forecasts and places in the line, beside what happens in virtual time."""

from random import Random

import pytest

from e2e.experiments.virtual import workload_of
from e2e.workload import FIRST, FULL, Scenario
from policy.document.model import Policy
from policy.planning import snapshot_file
from policy.planning.plan import Plan
from policy.planning.plan_input import PlanInput
from policy.planning.snapshot_file import SnapshotFile, comparable
from simulator.run import play
from simulator.timing import Timing
from simulator.workload import Arrival, Workload
from tests.simulator import forecasts, lines
from tests.support.builders import service
from tests.support.storm_size import part_of

_CASES = part_of(200)
_QUEUES = part_of(24)


def test_a_policy_does_what_the_forecast_says() -> None:
    """Within one trainer a job, in random clusters whose policy changes; a few of the soak's cases."""
    for seed in range(3):
        _, predicted, happened = forecasts.case(seed)
        assert forecasts.worst(predicted, happened) <= 1


def test_jobs_start_in_the_order_that_was_said() -> None:
    """In two random queues, one in strict order; of the pairs about which an order was said."""
    right, said, _ = map(sum, zip(*(lines.case(seed) for seed in (1, 2)), strict=True))
    assert right >= 0.95 * said


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_forecast_is_right_in_95_of_100_cases() -> None:
    """200 random clusters, each with another policy after two minutes."""
    right, moved = 0, 0
    for seed in range(_CASES):
        before, predicted, happened = forecasts.case(seed)
        right += forecasts.worst(predicted, happened) <= 1
        moved += forecasts.worst(before, happened) > 1
    assert right >= 0.95 * _CASES
    assert moved >= 0.5 * _CASES  # the policies differ: saying that nothing changes would be wrong


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_order_is_right_in_95_of_100_pairs() -> None:
    """24 random queues in both orders of admission; nothing is said about at most a third of the pairs."""
    right, said, pairs = map(sum, zip(*(lines.case(seed) for seed in range(_QUEUES)), strict=True))
    assert right >= 0.95 * said
    assert said >= 2 / 3 * pairs


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_thousand_snapshots_give_the_plans_that_were_made() -> None:
    """Written, read and planned again: of the first experiment and the demo's burst of services."""
    plans: list[tuple[PlanInput, Plan]] = []

    def observe(plan_input: PlanInput, plan: Plan) -> None:
        plans.append((plan_input, plan))

    for scenario in (FIRST, FULL):
        workload = _with_services(workload_of(scenario), scenario)
        play(workload, Policy(), Timing(tick_s=0.5), observe=observe)
    assert sum(not plan.empty for _, plan in plans) >= 100
    for plan_input, plan in Random(1).sample(plans, 1000):  # noqa: S311 - repeatable on purpose
        file = snapshot_file.loads(snapshot_file.dumps(SnapshotFile(plan_input, plan)))
        assert comparable(file.input.plan()) == file.decided == comparable(plan)


def _with_services(workload: Workload, scenario: Scenario) -> Workload:
    """The demo's last burst: as many services as on its highest plateau come after the jobs."""
    pods = tuple(service(f"web-{n:03}", 3, priority=100) for n in range(max(scenario.services)))
    burst = Arrival(workload.end_s / 2, pods=pods)
    return Workload(workload.nodes, (*workload.arrivals, burst), workload.end_s)
