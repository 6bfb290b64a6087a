"""The job as the reconciler sees it: what a loss would cost, and how it ended."""

from typing import Any

from master.liveness import Liveness
from master.status import LEADER_COST_S, Counts, outcome, report
from tests.master.books import done, opened, who, work

Json = dict[str, Any]
_ALONE: Json = {"round": 0, "formed": False, "members": []}


def _ranks(*trainers: str) -> Json:
    members = [{"trainer": name, "rank": rank} for rank, name in enumerate(trainers)]
    return {"round": 1, "formed": True, "members": members}


def test_the_leader_costs_ten_seconds_at_least() -> None:
    """The reconciler releases another one first; all others cost what they have trained."""
    ledger, liveness = opened("a", "b", "c"), Liveness(2.0)
    for name, trained in (("a", 0), ("b", 5), ("c", 0)):
        liveness.beat(name, [{"task": "t", "trained": trained}], 100.0)
    found = report(ledger, liveness, Counts(), _ranks("a", "b"), 103.0)["trainers"]
    later = report(ledger, liveness, Counts(), _ranks("b", "a"), 150.0)["trainers"]

    assert {name: one["uncommitted_s"] for name, one in found.items()} == {
        "a": LEADER_COST_S,
        "b": 3.0,
        "c": 0.0,
    }
    assert {name: one["rank"] for name, one in found.items()} == {"a": 0, "b": 1, "c": None}
    assert found["b"]["uncommitted_records"] == 5
    assert later["b"]["uncommitted_s"] == 50.0
    assert later["c"]["heard_s_ago"] == 50.0


def test_who_has_not_come_to_a_new_master_has_not_joined() -> None:
    """It holds what the books say until then."""
    ledger = opened("a", "b")
    work(ledger, "a", 3)
    ledger.execute({"do": "takeover"})
    ledger.execute({"do": "join", **who("b")})
    found = report(ledger, Liveness(2.0), Counts(), _ALONE, 0.0)

    assert {name: one["joined"] for name, one in found["trainers"].items()} == {
        "a": False,
        "b": True,
    }
    assert (found["trainers"]["a"]["held"], found["generation"]) == (3, 2)


def test_the_outcome_is_said_once_there_is_one() -> None:
    """Nothing while the job goes on; a job that failed says why."""
    ledger = opened("a", records=10)
    assert outcome(ledger) == ""
    done(ledger, "a", work(ledger, "a", 1)["tasks"])
    assert outcome(ledger) == "done"
    failed = opened("a")
    failed.execute({"do": "fail", **who("a"), "reason": "the loss is nan"})

    assert outcome(failed) == "failed: a: the loss is nan"
