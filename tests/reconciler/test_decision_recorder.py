"""Plans become records: of changes alone, and within the time that a tick has."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from policy.decisions import Figure
from policy.plan import JobPlan, Plan
from policy.reasons import Reason
from policy.snapshot import Job
from reconciler.decision_recorder import DecisionRecorder
from reconciler.quarantine import Quarantine
from reconciler.record_inbox import RecordInbox
from runtime.decision_log import DecisionLog
from tests.support.builders import NOW_S, cluster_state, job, node


class CountingLog(DecisionLog):
    """A decision log that counts records."""

    count = 0

    def record(self, *words: Any, **keywords: Any) -> bool:
        """Counts."""
        self.count += 1
        return super().record(*words, **keywords)


def _no_room(owner: Job, **fields: Any) -> JobPlan:
    figures: dict[str, Figure] = {"trainers": 1, "needs": owner.requests}
    return replace(JobPlan(owner.key, 1, 1, Reason.NO_ROOM, figures, 0.1), **fields)


def _figures(records: DecisionLog, owner: Job) -> Mapping[str, Any]:
    figures: Mapping[str, Any] = records.newest()[owner.key]["figures"]  # type: ignore[assignment]  # JSON
    return figures


JOBS = [job("a", cpu=5), job("b", cpu=5), job("c", cpu=7)]


def test_only_what_changed_is_noted() -> None:
    """An unchanged job costs one comparison; another share does not count as a change."""
    records = CountingLog()
    cluster = cluster_state([node("n0", 4)], JOBS)
    recorder = DecisionRecorder(records, Quarantine(cluster), RecordInbox())
    recorder.record(Plan(jobs=tuple(map(_no_room, JOBS))), cluster, (), NOW_S)
    moved = Plan(jobs=tuple(_no_room(owner, share=0.2) for owner in JOBS))
    recorder.record(moved, cluster, (), NOW_S + 1)
    recorder.record(
        Plan(jobs=(_no_room(JOBS[0], target=2), *moved.jobs[1:])), cluster, (), NOW_S + 2
    )

    assert records.count == len(JOBS) + 1


def test_a_job_made_anew_is_noted_anew() -> None:
    """Even where it looks like the one before."""
    records = DecisionLog()
    cluster = cluster_state([node("n0", 4)], JOBS)
    recorder = DecisionRecorder(records, Quarantine(cluster), RecordInbox())
    plan = Plan(jobs=(_no_room(JOBS[0]),))
    recorder.record(plan, cluster, (), NOW_S)
    recorder.forget(JOBS[0])
    before = records.about(JOBS[0].key)
    recorder.record(plan, cluster, (), NOW_S + 5)

    assert before == []
    assert [record["at"] for record in records.about(JOBS[0].key)] == [NOW_S + 5]


def test_the_node_that_comes_nearest_is_told() -> None:
    """For each shape that lacks room."""
    records = DecisionLog()
    cluster = cluster_state([node("n0", 4), node("n1", 2)], JOBS)
    DecisionRecorder(records, Quarantine(cluster), RecordInbox()).record(
        Plan(jobs=tuple(map(_no_room, JOBS))), cluster, (), NOW_S
    )

    assert [_figures(records, owner)["nearest"] for owner in JOBS] == ["n0"] * 3
    assert _figures(records, JOBS[2])["nodes"] == 2


def test_looking_ends_when_its_time_is_used_up() -> None:
    """The first shape is always looked up, equal ones cost nothing more, others get no figures."""
    records = DecisionLog()
    nodes = [node(f"n{number:04}", 4) for number in range(2000)]
    cluster = cluster_state(nodes, JOBS)
    DecisionRecorder(records, Quarantine(cluster), RecordInbox()).record(
        Plan(jobs=tuple(map(_no_room, JOBS))), cluster, (), NOW_S
    )

    assert ["nearest" in _figures(records, owner) for owner in JOBS] == [True, True, False]
