"""What arriving jobs cost, counted on clusters small enough for paper, and on the real one."""

from dataclasses import replace

import pytest

from e2e.measure.arrivals import bounds, exact, once, tolerant
from e2e.workload import FIRST, FIRST_QUICK, Scenario

PAPER = replace(
    FIRST,
    big_nodes=2,
    small_nodes=0,
    system_cpu_millis=0,
    jobs=2,
    pservers=1,
    max_trainers=60,
)
"""Two nodes of 18 CPU; a job has one parameter server of 4 and one master of 1."""


def test_the_bound_packs_node_by_node() -> None:
    """One of 4 beside 2 of 5 and 4 left, 3 of 5 on the other; two of 4 fit beside 2 of 5."""
    assert bounds(PAPER) == (5, 5)


def test_the_bound_counts_small_pods_between() -> None:
    """With 12 CPU of system pods the sum allows what the packing would not forbid."""
    assert bounds(replace(PAPER, system_cpu_millis=12_000)) == (3, 2)


def test_the_bound_is_never_more_than_jobs_want() -> None:
    """One job of at most 2 trainers fills no cluster."""
    assert bounds(replace(PAPER, max_trainers=2)) == (2, 4)


def test_system_pods_may_cost_more_where_they_are() -> None:
    """All 4.5 CPU on one node leave it 13.5, which is a trainer less than if each had a part."""
    scenario = replace(PAPER, system_cpu_millis=4_500, jobs=1)
    assert bounds(scenario) == (5,)
    assert bounds(scenario, [13_500, 18_000]) == (4,)


def test_parameter_servers_alone_may_leave_no_room() -> None:
    """Where not even they fit, no trainer is promised."""
    assert bounds(replace(PAPER, pservers=20))[-1] == 0


@pytest.mark.parametrize(
    ("totals", "stopped"),
    [((6,), 0), ((6, 6), 3), ((6, 6, 6), 3 + 2), ((4, 8), 0), ((5, 4), 3), ((7, 7), 3)],
)
def test_exact_shares_are_moved_at_every_arrival(totals: tuple[int, ...], stopped: int) -> None:
    """Six trainers for one, then three each, then two each: three go, then two."""
    assert exact(totals) == stopped


@pytest.mark.parametrize(
    ("totals", "stopped"), [((6,), 0), ((6, 6), 3), ((6, 6, 6), 4), ((4, 8), 0), ((5, 4), 3)]
)
def test_with_hindsight_each_trainer_is_stopped_once(totals: tuple[int, ...], stopped: int) -> None:
    """Of six trainers four go if two are the share of the end, whoever comes between."""
    assert once(totals) == stopped


def test_tolerance_costs_less_than_exactness_and_more_than_hindsight() -> None:
    """The newcomer gets a little less, so that less must be taken."""
    totals = (60, 60, 60, 60)
    assert once(totals) < tolerant(totals, 2, 0.97) < tolerant(totals, 2, 0.99) <= exact(totals)


def test_room_that_grows_goes_to_the_poorest_and_stops_nobody() -> None:
    """The second job may have all it wants beside the first."""
    assert tolerant((4, 8), 2, 1.0) == 0


def test_where_whole_trainers_cannot_be_so_fair_the_fairest_is_taken() -> None:
    """Five for two jobs are three and two: two of the first job's five go."""
    assert tolerant((5, 5), 1, 1.0) == 2


@pytest.mark.parametrize(
    ("scenario", "bound", "counts"),
    [(FIRST, 294, (446, 361, 270)), (FIRST_QUICK, 32, (34, 31, 22))],
)
def test_the_first_experiment(scenario: Scenario, bound: int, counts: tuple[int, int, int]) -> None:
    """The figures that its report names."""
    totals = bounds(scenario)
    assert totals[-1] == bound
    needed = (exact(totals), tolerant(totals, scenario.min_trainers, 0.99), once(totals))
    assert needed == counts
