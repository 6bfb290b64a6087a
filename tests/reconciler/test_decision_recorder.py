"""Plans become records: of changes alone, and within the time that a tick has."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from policy.cluster.snapshot import Job
from policy.decisions import Figure
from policy.names import Tier
from policy.planning.plan import JobPlan, Plan
from policy.reasons import Reason
from reconciler.quarantine import Quarantine
from reconciler.records.decision_recorder import DecisionRecorder
from reconciler.records.inbox import Entry, RecordInbox
from reconciler.trainers.controller import CreationResult
from tests.support.builders import NOW_S, cluster_state, job, node

JOBS = [job("a", cpu=5), job("b", cpu=5), job("c", cpu=7)]


class CountingInbox(RecordInbox):
    """An inbox that counts decisions about jobs."""

    count = 0

    def put_current(self, *words: Any) -> None:
        """Counts."""
        self.count += 1
        super().put_current(*words)


@pytest.fixture
def inbox() -> CountingInbox:
    """Receives the decisions."""
    return CountingInbox()


def _no_room(owner: Job, **fields: Any) -> JobPlan:
    figures: dict[str, Figure] = {"trainers": 1, "needs": owner.requests}
    return replace(JobPlan(owner.key, 1, 1, Reason.NO_ROOM, figures, 0.1), **fields)


def _figures(entries: list[Entry], owner: Job) -> Mapping[str, Any]:
    (record,) = [entry.record for entry in entries if entry.job == owner.key]
    assert record is not None
    return record.figures


def test_only_what_changed_is_noted(inbox: CountingInbox) -> None:
    """An unchanged job costs one comparison; another share does not count as a change."""
    cluster = cluster_state([node("n0", 4)], JOBS)
    recorder = DecisionRecorder(Quarantine(cluster), inbox)
    recorder.record(Plan(jobs=tuple(map(_no_room, JOBS))), cluster, (), NOW_S)
    moved = Plan(jobs=tuple(_no_room(owner, share=0.2) for owner in JOBS))
    recorder.record(moved, cluster, (), NOW_S + 1)
    recorder.record(
        Plan(jobs=(_no_room(JOBS[0], target=2), *moved.jobs[1:])), cluster, (), NOW_S + 2
    )

    assert inbox.count == len(JOBS) + 1


def test_a_job_made_anew_is_noted_anew(inbox: CountingInbox) -> None:
    """Even where it looks like the one before."""
    cluster = cluster_state([node("n0", 4)], JOBS)
    recorder = DecisionRecorder(Quarantine(cluster), inbox)
    plan = Plan(jobs=(_no_room(JOBS[0]),))
    recorder.record(plan, cluster, (), NOW_S)
    recorder.forget(JOBS[0])
    recorder.record(plan, cluster, (), NOW_S + 5)
    records = [entry.record for entry in inbox.drain()]

    assert [record and record.at_s for record in records] == [NOW_S, None, None, NOW_S + 5]


def test_the_node_that_comes_nearest_is_told(inbox: CountingInbox) -> None:
    """For each shape that lacks room."""
    cluster = cluster_state([node("n0", 4), node("n1", 2)], JOBS)
    DecisionRecorder(Quarantine(cluster), inbox).record(
        Plan(jobs=tuple(map(_no_room, JOBS))), cluster, (), NOW_S
    )
    entries = inbox.drain()

    assert [_figures(entries, owner)["nearest"] for owner in JOBS] == ["n0"] * 3
    assert _figures(entries, JOBS[2])["nodes"] == 2


def test_looking_ends_when_its_time_is_used_up(inbox: CountingInbox) -> None:
    """The first shape is always looked up, equal ones cost nothing more, others get no figures."""
    nodes = [node(f"n{number:04}", 4) for number in range(2000)]
    cluster = cluster_state(nodes, JOBS)
    DecisionRecorder(Quarantine(cluster), inbox).record(
        Plan(jobs=tuple(map(_no_room, JOBS))), cluster, (), NOW_S
    )
    entries = inbox.drain()

    assert ["nearest" in _figures(entries, owner) for owner in JOBS] == [True, True, False]


def test_a_refusal_that_goes_on_is_recorded_once(inbox: CountingInbox) -> None:
    """Other figures are recorded once a minute; after another process has led, all are recorded."""
    recorder = DecisionRecorder(Quarantine(cluster_state([], JOBS)), inbox)

    def recorded_at(at_s: float, error: str) -> list[float]:
        recorder.record_creation(CreationResult(JOBS[0], 0, Tier.SURPLUS, error), NOW_S + at_s)
        return [entry.record.at_s - NOW_S for entry in inbox.drain() if entry.record]

    assert recorded_at(0, "") == []
    assert recorded_at(1, "no") == [1]
    assert recorded_at(500, "no") == []
    assert recorded_at(501, "never") == [501]
    assert recorded_at(560, "no") == []
    assert recorded_at(561, "no") == [561]
    recorder.stand_by()
    assert recorded_at(562, "no") == [562]


def test_the_oldest_subjects_of_a_job_are_forgotten_first(
    inbox: CountingInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job avoids few nodes at a time, but its trainers end for months."""
    monkeypatch.setattr("reconciler.records.decision_recorder._MAX_SUBJECTS", 2)
    cluster = cluster_state([], JOBS)
    recorder = DecisionRecorder(Quarantine(cluster), inbox)
    for name in ("n0", "n1", "n2", "n2", "n0"):
        recorder.record(Plan(avoided={JOBS[0].key: {name: 1.0}}), cluster, (), NOW_S)

    abouts = [entry.record and entry.record.about for entry in inbox.drain()]
    assert abouts == ["node n0", "node n1", "node n2", "node n0"]
