"""The demo's bursts in virtual time, with overcommit and without: what the load of a machine cannot blur."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from e2e import workload
from e2e.experiments.virtual import workload_of
from e2e.workload import FULL, QUICK, Scenario
from kube.state_feed import overcommitted
from policy.cluster.snapshot import Phase
from policy.document import parser as document
from policy.document.model import Policy
from policy.names import Role
from simulator.cluster import PodChange
from simulator.run import play
from simulator.workload import Arrival, Workload
from tests.support.builders import service

_RATIO = 1.5
_GROWN_S, _STEP_S = 60.0, 30.0
"""When the first burst comes, and the time between two."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave."""

    trainers: int
    """Before the first burst."""
    reclaims_s: tuple[float, ...]
    """Of each burst, until its last service runs."""
    limits_millis: int
    """The largest sum of the CPU limits of trainers that do not leave."""


def outcome(scenario: Scenario) -> Outcome:
    """Few services at first, then bursts up to the most that the scenario has."""
    policy = document.parse(workload.policy(scenario)) if scenario.overcommit > 1 else Policy()
    base = workload_of(scenario)
    steps = sorted(set(scenario.services))
    bursts = [steps[0], *(after - before for before, after in pairwise(steps))]
    times = [0.0, *(_GROWN_S + _STEP_S * n for n in range(len(bursts) - 1))]
    services = [
        Arrival(at_s, tuple(service(f"web-{burst}-{n}", 3, priority=100) for n in range(count)))
        for burst, (at_s, count) in enumerate(zip(times, bursts, strict=True))
    ]
    jobs = [
        arrival
        if arrival.job is None
        else replace(arrival, job=overcommitted(policy.overcommit, arrival.job))
        for arrival in base.arrivals
    ]
    arrivals = tuple(sorted((*services, *jobs), key=lambda arrival: arrival.at_s))
    changes = play(Workload(base.nodes, arrivals, times[-1] + _STEP_S), policy)
    return Outcome(
        _trainers(changes, _GROWN_S),
        tuple(
            _runs_s(changes, f"web-{burst}-", bursts[burst]) - times[burst]
            for burst in range(1, len(bursts))
        ),
        _most_limits(changes),
    )


def _trainers(changes: Sequence[PodChange], until_s: float) -> int:
    running = {
        change.new.uid
        for change in changes
        if change.at_s < until_s
        and change.new
        and change.new.role is Role.TRAINER
        and change.new.phase is Phase.RUNNING
    }
    gone = {
        change.old.uid
        for change in changes
        if change.at_s < until_s and change.old and not change.new
    }
    return len(running - gone)


def _runs_s(changes: Sequence[PodChange], prefix: str, count: int) -> float:
    """When the last of so many services runs; never is an error."""
    first: dict[str, float] = {}
    for change in changes:
        if change.new and change.new.name.startswith(prefix) and change.new.phase is Phase.RUNNING:
            first.setdefault(change.new.uid, change.at_s)
    assert len(first) == count
    return max(first.values())


def _most_limits(changes: Sequence[PodChange]) -> int:
    """As quotas count it: the request of one without a limit, from creation until it leaves."""
    most = total = 0
    held: dict[str, int] = {}
    for change in changes:
        pod = change.new or change.old
        if pod is None or pod.role is not Role.TRAINER:
            continue
        total -= held.pop(pod.uid, 0)
        if change.new is not None and not (change.new.terminal or change.new.deleting):
            held[pod.uid] = change.new.limits.get("cpu", change.new.requests.get("cpu", 0))
            total += held[pod.uid]
        most = max(most, total)
    return most


@pytest.mark.parametrize(
    "scenario", [QUICK, pytest.param(FULL, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]
)
def test_overcommit_adds_trainers_and_costs_services_nothing(scenario: Scenario) -> None:
    """Of what the ratio adds, seven tenths at least; bursts wait no longer; the quota on limits holds throughout."""
    base = outcome(scenario)
    over_scenario = workload.overcommitted(scenario, _RATIO)
    over = outcome(over_scenario)

    assert over.trainers >= (1 + 0.7 * (_RATIO - 1)) * base.trainers
    for with_overcommit, without in zip(over.reclaims_s, base.reclaims_s, strict=True):
        assert with_overcommit <= 1.25 * without
    assert over.limits_millis <= 1000 * over_scenario.limits_quota_cpu
