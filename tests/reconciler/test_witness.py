"""Plans become records: of changes alone, and within the time that a round has."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from policy.decisions import Figure
from policy.planning import JobPlan, Plan
from policy.reasons import Reason
from policy.snapshot import Job
from reconciler.witness import Witness
from runtime.records import Records
from tests.support.builders import NOW_S, index, job, node


class Seen(Records):
    """Counts what it is told."""

    told = 0

    def note(self, *words: Any, **more: Any) -> None:
        """Counts."""
        self.told += 1
        super().note(*words, **more)


def _no_room(owner: Job, **fields: Any) -> JobPlan:
    figures: dict[str, Figure] = {"trainers": 1, "needs": owner.requests}
    return replace(JobPlan(owner.key, 1, 1, Reason.NO_ROOM, figures, 0.1), **fields)


def _figures(records: Records, owner: Job) -> Mapping[str, Any]:
    found: Mapping[str, Any] = records.newest()[owner.key]["figures"]  # type: ignore[assignment]  # JSON
    return found


JOBS = [job("a", cpu=5), job("b", cpu=5), job("c", cpu=7)]


def test_only_what_changed_is_noted() -> None:
    """A thousand jobs that rest cost a comparison each; a share that moved is no change."""
    records = Seen()
    seen = Witness(records)
    cluster = index([node("n0", 4)], JOBS)
    seen.planned(Plan(jobs=tuple(map(_no_room, JOBS))), cluster, (), NOW_S)
    moved = Plan(jobs=tuple(_no_room(owner, share=0.2) for owner in JOBS))
    seen.planned(moved, cluster, (), NOW_S + 1)
    seen.planned(Plan(jobs=(_no_room(JOBS[0], target=2), *moved.jobs[1:])), cluster, (), NOW_S + 2)

    assert records.told == len(JOBS) + 1


def test_a_job_made_anew_is_noted_anew() -> None:
    """Even where it looks like the one before."""
    records = Records()
    seen = Witness(records)
    cluster = index([node("n0", 4)], JOBS)
    made = Plan(jobs=(_no_room(JOBS[0]),))
    seen.planned(made, cluster, (), NOW_S)
    seen.forget(JOBS[0].key)
    before = records.about(JOBS[0].key)
    seen.planned(made, cluster, (), NOW_S + 5)

    assert before == []
    assert [one["at"] for one in records.about(JOBS[0].key)] == [NOW_S + 5]


def test_the_node_that_comes_nearest_is_told() -> None:
    """For each shape that lacks room."""
    records = Records()
    cluster = index([node("n0", 4), node("n1", 2)], JOBS)
    Witness(records).planned(Plan(jobs=tuple(map(_no_room, JOBS))), cluster, (), NOW_S)

    assert [_figures(records, owner)["nearest"] for owner in JOBS] == ["n0"] * 3
    assert _figures(records, JOBS[2])["nodes"] == 2


def test_looking_ends_when_its_time_is_used_up() -> None:
    """The first shape is always looked into, alike ones cost nothing more, others go without."""
    records = Records()
    nodes = [node(f"n{number:04}", 4) for number in range(2000)]
    cluster = index(nodes, JOBS)
    Witness(records).planned(Plan(jobs=tuple(map(_no_room, JOBS))), cluster, (), NOW_S)

    assert ["nearest" in _figures(records, owner) for owner in JOBS] == [True, True, False]
