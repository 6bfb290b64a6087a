"""What trainers say of the whole job: that it fails, and what was lost with the model's state."""

import pytest

from master.errors import RefusedError
from master.ledger import Ledger
from tests.master.books import done, join, opened, ref, who, work


def test_a_job_that_a_trainer_ends_has_failed() -> None:
    """With the first reason, whoever else fails because of it; nothing is leased any more."""
    ledger = opened("a", "b")
    told = ledger.execute({"do": "fail", **who("a"), "reason": "the loss is nan"})
    ledger.execute({"do": "fail", **who("b"), "reason": "a is gone"})

    assert told == {"state": "failed"}
    assert (ledger.state(), ledger.failed) == ("failed", "a: the loss is nan")
    assert work(ledger, "b", 1)["state"] == "stop"
    assert ledger.word() == "stop"


def test_a_job_that_is_done_does_not_fail_any_more() -> None:
    """Its model is there."""
    ledger = opened("a")
    done(ledger, "a", work(ledger, "a", 10)["tasks"])

    assert ledger.execute({"do": "fail", **who("a"), "reason": "late"}) == {"state": "done"}
    assert ledger.failed == ""


@pytest.mark.parametrize("name", ["fail", "setback"])
def test_only_a_trainer_that_has_joined_can_say_so(name: str) -> None:
    """Another changes nothing."""
    ledger = opened("a")
    before = ledger.dump()
    told = {"event": "e", "reason": "x", "steps": 1, "records": 1}
    with pytest.raises(RefusedError, match="has not joined"):
        ledger.execute({"do": name, **who("b"), **told})

    assert ledger.dump() == before


def test_setbacks_are_summed_and_the_newest_are_kept() -> None:
    """Twenty of them, also in the books that another master reads."""
    ledger = opened("a", "b")
    for number in range(25):
        told = {"event": f"{number}", "reason": f"reason {number}", "steps": 2, "records": number}
        ledger.execute({"do": "setback", **who("ab"[number % 2]), **told})
    again = Ledger("digits")
    again.load(ledger.dump())
    found = again.setbacks

    assert (found.count, found.steps, found.records) == (25, 50, 300)
    assert [one["reason"] for one in found.newest] == [f"reason {n}" for n in range(5, 25)]
    assert found.newest[-1] == {
        "by": "a",
        "event": "24",
        "reason": "reason 24",
        "steps": 2,
        "records": 24,
    }
    assert again.dump() == ledger.dump()


def test_books_of_before_have_no_setbacks() -> None:
    """They can be read."""
    dumped = opened("a").dump()
    del dumped["setbacks"]
    ledger = Ledger("digits")
    ledger.load(dumped)

    assert ledger.setbacks.dump() == {"count": 0, "steps": 0, "records": 0, "newest": []}


def test_what_the_next_process_goes_on_with_is_not_lost() -> None:
    """Neither what it holds nor what it has told as done; the rest of the old one's work is."""
    ledger = opened("a")
    kept, told, lost, stale = work(ledger, "a", 4)["tasks"]
    trained = {one["task"]: 4 for one in (kept, told, lost, stale)}
    new = {"trainer": "a", "incarnation": "a-2", "trained": trained}
    held = [ref(kept), {**ref(stale), "attempt": stale["attempt"] + 1}]
    ledger.execute({"do": "join", **new, "held": held, "done": [ref(told)]})

    assert ledger.lost_records == 8
    assert ledger.datasets["train"].progress()["done_records"] == 10
    assert ledger.holder(kept["task"], kept["attempt"], "a")


def test_a_process_that_knows_nothing_of_the_one_before_loses_its_work() -> None:
    """As ever."""
    ledger = opened("a")
    (lease,) = work(ledger, "a", 1)["tasks"]
    join(ledger, "a", incarnation="a-2", trained={lease["task"]: 7})

    assert ledger.lost_records == 7
