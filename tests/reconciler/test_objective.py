"""The reclaim objective: who counts, what is left of its budget, and how another leader goes on."""

from dataclasses import replace
from itertools import pairwise

import pytest

from kube.object_change import ObjectChange
from policy.cluster.snapshot import Phase, Pod
from policy.document.model import Objectives, ReclaimCause, ReclaimObjective
from policy.records import CLUSTER
from reconciler.metrics import ReconcilerMetrics
from reconciler.records.inbox import RecordInbox
from reconciler.records.objective import ObjectiveCounter
from reconciler.records.observer import Observer
from reconciler.records.service_starts import ServiceStart, ServiceWait
from runtime.metrics import Metrics
from tests.support.builders import NOW_S, service

OBJECTIVE = ReclaimObjective(share=0.9, seconds=5.0, window_hours=1)


def _start(seconds: float, cause: ReclaimCause = ReclaimCause.RELEASED) -> ServiceStart:
    return ServiceStart(ServiceWait(service("web"), cause), seconds)


def test_services_within_the_time_keep_it() -> None:
    """Those for which training gave nothing do not count, unless the policy names their cause."""
    counter = ObjectiveCounter()
    starts = [
        _start(4.0),
        _start(6.0),
        _start(60.0, ReclaimCause.WAITED),
        _start(5.0, ReclaimCause.PREEMPTED),
    ]
    missed = counter.count(OBJECTIVE, starts, NOW_S)
    every = OBJECTIVE.model_copy(update={"causes": tuple(ReclaimCause)})
    waited = ObjectiveCounter().count(every, starts, NOW_S)

    assert [start.seconds for start in missed] == [6.0]
    assert [start.seconds for start in waited] == [6.0, 60.0]
    standing = counter.standing(OBJECTIVE, NOW_S)
    assert (standing.kept_count, standing.missed_count) == (2, 1)


@pytest.mark.parametrize(
    ("kept", "missed", "left"),
    [(0, 0, 1.0), (10, 0, 1.0), (99, 1, 0.9), (95, 5, 0.5), (80, 20, -1)],
)
def test_the_budget_is_the_share_that_may_take_longer(kept: int, missed: int, left: float) -> None:
    """With nothing measured it is whole; below 0 the objective is missed."""
    counter = ObjectiveCounter()
    counter.count(OBJECTIVE, [_start(1.0)] * kept + [_start(9.0)] * missed, NOW_S)

    assert counter.standing(OBJECTIVE, NOW_S).budget_left == pytest.approx(left)


def test_the_window_moves() -> None:
    """What lies before it does not count any more; the burn rate has spans of its own."""
    counter = ObjectiveCounter()
    counter.count(OBJECTIVE, [_start(9.0)] * 2 + [_start(1.0)] * 8, NOW_S)
    counter.count(OBJECTIVE, [_start(1.0)] * 5, NOW_S + 2 * 3600)
    now = counter.standing(OBJECTIVE, NOW_S)
    later = counter.standing(OBJECTIVE, NOW_S + 2 * 3600)

    assert now.burn["1h"] == pytest.approx(15 / 15 * 2 / 15 / 0.1)
    assert (later.kept_count, later.missed_count, later.burn["1h"]) == (5, 0, 0.0)
    assert later.burn["6h"] > 0


def test_another_leader_goes_on() -> None:
    """With what was counted before it saw its first service: nothing twice."""
    first, second = ObjectiveCounter(), ObjectiveCounter()
    first.count(OBJECTIVE, [_start(9.0), _start(1.0)], NOW_S)
    first.count(OBJECTIVE, [_start(1.0)] * 3, NOW_S + 600)
    second.count(OBJECTIVE, [_start(1.0)] * 3, NOW_S + 600)
    now_s = NOW_S + 700
    record = first.standing(OBJECTIVE, now_s).record(now_s, first.buckets(OBJECTIVE, now_s))
    second.restore(record)

    assert second.standing(OBJECTIVE, now_s) == first.standing(OBJECTIVE, now_s)
    assert record.text == ("4 of 5 services within 5 s (objective 0.9), -100% of the budget left")


def _changes(*states: Pod | None) -> list[dict[str, ObjectChange[Pod]]]:
    uid = next(state.uid for state in states if state is not None)
    return [{uid: ObjectChange(last, new)} for last, new in pairwise(states)]


def test_a_service_that_takes_too_long_has_a_record_with_its_stages() -> None:
    """In its namespace and in the cluster's; metrics show the budget."""
    inbox, metrics = RecordInbox(), Metrics("reconciler")
    observer = Observer(inbox, ReconcilerMetrics(metrics))
    waiting = service("web", created_s=NOW_S, nominated="n0", refused=True)
    bound = replace(waiting, node="n0", nominated="")
    running = replace(bound, phase=Phase.RUNNING)
    objectives = Objectives(reclaim=OBJECTIVE)
    steps = _changes(None, waiting, bound, running)
    for step, at_s in zip(steps, (NOW_S + 1, NOW_S + 4, NOW_S + 12), strict=True):
        observer.observe(step, {}, objectives, at_s, leads=True)
    entries = [entry for entry in inbox.drain() if entry.record is not None]
    missed = [e for e in entries if e.record and e.record.code == "ObjectiveMissed"]
    lines = metrics.text().decode().splitlines()

    assert {entry.namespace for entry in missed} == {waiting.namespace, CLUSTER}
    assert missed[0].record is not None
    assert missed[0].record.figures["stages"] == {"decide": 1.0, "free": 3.0, "start": 8.0}
    assert "slowest stage: start, 8.0 s" in missed[0].record.text
    assert 'edl_reconciler_reclaim_objective_services_total{result="missed"} 1.0' in lines
    (left,) = [line for line in lines if line.startswith("edl_reconciler_reclaim_objective_budget")]
    assert float(left.split()[1]) == pytest.approx(-9.0)
    assert [(e.namespace, e.record.code) for e in entries if e.record and e.is_current] == [
        (CLUSTER, "Objective")
    ]


def test_without_an_objective_nothing_is_measured_against_one() -> None:
    """The gauges are 0, and there is no record."""
    inbox, metrics = RecordInbox(), Metrics("reconciler")
    observer = Observer(inbox, ReconcilerMetrics(metrics))
    waiting = service("web", created_s=NOW_S, nominated="n0", refused=True)
    for step in _changes(None, waiting, replace(waiting, node="n0", phase=Phase.RUNNING)):
        observer.observe(step, {}, Objectives(), NOW_S + 60, leads=True)

    assert [e for e in inbox.drain() if e.record and "Objective" in e.record.code] == []
    assert "edl_reconciler_reclaim_objective_ratio 0.0" in metrics.text().decode().splitlines()
