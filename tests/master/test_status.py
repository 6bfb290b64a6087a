"""The status for the reconciler: what a loss would cost, and how the job ended."""

from master.commands import Fail, Join, TakeOver
from master.liveness import Liveness
from master.status import LEADER_COST_S, ServiceCounters, outcome, position, report
from runtime.call_checks import Json
from tests.master.ledger_calls import done, opened, position_of, who, work

_ALONE: Json = {"round": 0, "formed": False, "members": []}


def _ranks(*trainers: str) -> Json:
    members = [{"trainer": name, "rank": rank} for rank, name in enumerate(trainers)]
    return {"round": 1, "formed": True, "members": members}


def test_the_leader_costs_ten_seconds_at_least() -> None:
    """The reconciler releases another one first; all others cost what they have trained."""
    ledger, liveness = opened("a", "b", "c"), Liveness(2.0)
    for name, trained in (("a", 0), ("b", 5), ("c", 0)):
        liveness.record_heartbeat(name, {"t": trained}, 100.0)
    trainers = report(ledger, liveness, ServiceCounters(), _ranks("a", "b"), 103.0)["trainers"]
    later = report(ledger, liveness, ServiceCounters(), _ranks("b", "a"), 150.0)["trainers"]

    assert {name: trainer["uncommitted_s"] for name, trainer in trainers.items()} == {
        "a": LEADER_COST_S,
        "b": 3.0,
        "c": 0.0,
    }
    assert {name: trainer["rank"] for name, trainer in trainers.items()} == {
        "a": 0,
        "b": 1,
        "c": None,
    }
    assert trainers["b"]["uncommitted_records"] == 5
    assert later["b"]["uncommitted_s"] == 50.0
    assert later["c"]["heard_s_ago"] == 50.0


def test_who_has_not_come_to_a_new_master_has_not_joined() -> None:
    """Until then it holds the leases of the ledger."""
    ledger = opened("a", "b")
    work(ledger, "a", 3)
    ledger.execute(TakeOver())
    ledger.execute(Join(**who("b")))
    status = report(ledger, Liveness(2.0), ServiceCounters(), _ALONE, 0.0)

    assert {name: trainer["joined"] for name, trainer in status["trainers"].items()} == {
        "a": False,
        "b": True,
    }
    assert (status["trainers"]["a"]["held"], status["generation"]) == (3, 2)


def test_the_outcome_is_set_once_there_is_one() -> None:
    """It is empty while the job continues; a failed job has a reason."""
    ledger = opened("a", records=10)
    assert outcome(ledger) == ""
    done(ledger, "a", work(ledger, "a", 1)["tasks"])
    assert outcome(ledger) == "done"
    failed = opened("a")
    failed.execute(Fail(**who("a"), reason="the loss is nan"))

    assert outcome(failed) == "failed: a: the loss is nan"


def test_what_cannot_be_written_is_in_the_status_until_it_is() -> None:
    """One line for each of journal and snapshot; the numbers stay."""
    counters = ServiceCounters(failed_snapshots=3)
    counters.note_write("no snapshot", "the disk is full")
    counters.note_write("no journal", "the disk is full")
    counters.note_write("no journal")
    ledger = opened("a")

    shown = report(ledger, Liveness(5.0), counters, _ALONE, 0.0)

    assert shown["storage_errors"] == ["no snapshot: the disk is full"]
    assert shown["counts"]["failed_snapshots"] == 3
    counters.note_write("no snapshot")
    assert report(ledger, Liveness(5.0), counters, _ALONE, 0.0)["storage_errors"] == []


def test_a_position_names_the_tasks_that_it_has() -> None:
    """Of those that the caller asks about, the ones that are done: it need not list them itself."""
    ledger = opened("a")
    first, second = work(ledger, "a", 2)["tasks"]
    done(ledger, "a", [first])

    answer = position(ledger, "train", [second["task"], first["task"], "train/0/99"])

    assert answer == {
        "position": position_of(ledger),
        "settled": [first["task"]],
        "generation": 0,
        "base": 0,
    }
