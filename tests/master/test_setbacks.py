"""What trainers say of the whole job: that it fails, and what was lost with the model's state."""

from hashlib import sha512
from typing import NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.errors import RefusedError
from master.fence import MOST_BYTES, pack
from master.ledger import Ledger
from master.setbacks import Setbacks
from tests.master.books import Json, done, join, opened, ref, who, work
from tests.support.strategies import CALM


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


def word(event: str, steps: int, holder: str, own: int, pending: int = 0) -> Json:
    """A trainer of parameter servers tells of a setback; each batch has ten records."""
    share = {"holder": holder, "steps": own, "records": 10 * own}
    share.update(pending_steps=pending, pending_records=10 * pending)
    told = {"event": event, "reason": "server 1 began anew", "steps": steps}
    return {**told, "records": 10 * steps, "share": share}


class Trainer(NamedTuple):
    """What became of its batches when servers went back."""

    lost: int
    pending: bool
    """One was on its way."""
    applied: bool
    """And server 0 had it."""
    seen: int
    """So many versions before the end was its last answer."""


TRAINERS = st.builds(Trainer, st.integers(0, 4), st.booleans(), st.booleans(), st.integers(0, 3))


@CALM
@given(st.lists(TRAINERS, min_size=1, max_size=4), st.data())
def test_shares_of_all_trainers_are_exactly_what_is_lost(
    trainers: list[Trainer], data: st.DataObject
) -> None:
    """Whoever tells first or twice, whatever was on its way, and across another master's start."""
    lost = sum(one.lost for one in trainers)
    reached = lost + sum(one.pending and one.applied for one in trainers)
    words = [
        word("generation-1", max(0, reached - one.seen), str(place), one.lost, int(one.pending))
        for place, one in enumerate(trainers)
    ]
    found = Setbacks()
    for told in data.draw(st.permutations(words + data.draw(st.lists(st.sampled_from(words))))):
        found.add("t", told)
        found = Setbacks.load(found.dump())

    assert (found.count, found.steps, found.records) == (1, lost, 10 * lost)
    assert found.newest[0]["steps"] == lost


def test_what_only_a_trainer_knew_that_has_left_is_counted_by_versions() -> None:
    """Those that stayed were answered later; their own batches on their way are taken off."""
    found = Setbacks()
    found.add("a", word("e", 7, "a", 1, pending=1))
    found.add("b", word("e", 6, "b", 2))

    assert (found.steps, found.records) == (6, 60)


def test_shares_of_every_setback_that_is_shown_add_up() -> None:
    """One trainer was away, and tells of twenty at once; whoever repeats a word counts once."""
    setbacks = Setbacks()
    words = [word(f"{n}", 100, holder, 100) for holder in ("a", "b", "b", "a") for n in range(20)]
    for each in words:
        setbacks.add("t", each)
        setbacks = Setbacks.load(setbacks.dump())

    assert (setbacks.count, setbacks.steps, setbacks.records) == (20, 4_000, 40_000)
    assert "shares" not in setbacks.shown()


def test_a_word_on_a_setback_of_long_ago_counts_nothing() -> None:
    """Its answer was lost, perhaps; also across another master's start."""
    setbacks = Setbacks()
    for number in range(100):
        setbacks.add("t", word(f"{number}", 10, "a", 10))
        setbacks = Setbacks.load(setbacks.dump())
    for number in range(80):
        setbacks.add("t", word(f"{number}", 10, "a", 10))

    assert (setbacks.count, setbacks.steps, setbacks.records) == (100, 1_000, 10_000)
    assert [event["event"] for event in setbacks.newest] == [f"{n}" for n in range(80, 100)]


def test_setbacks_of_books_with_three_shares_go_on() -> None:
    """A share of an older one is part of its cost: the most that was told of it counts."""
    newest = [
        {"by": "a", "event": f"{n}", "reason": "r", "steps": 5, "records": 50} for n in range(4)
    ]
    share = {"steps": 5, "records": 50, "pending_steps": 0, "pending_records": 0}
    kept = {f"{n}": {"most": {"steps": 5, "records": 50}, "by": {"a": share}} for n in (1, 2, 3)}
    dumped: Json = {"count": 4, "steps": 20, "records": 200, "newest": newest, "shares": kept}
    setbacks = Setbacks.load(dumped)
    setbacks.add("a", word("0", 5, "a", 5))
    assert (setbacks.steps, setbacks.records) == (20, 200)
    for number in (0, 3):
        setbacks.add("b", word(f"{number}", 5, "b", 4))

    assert (setbacks.count, setbacks.steps, setbacks.records) == (4, 28, 280)


def test_many_holders_leave_the_books_small() -> None:
    """With names as long as may be; their shares count all the same."""
    ledger = opened("a")
    for number in range(20):
        for holder in range(200):
            name = f"{sha512(b'%d' % holder).hexdigest()}{number}".ljust(253, "x")
            ledger.execute({"do": "setback", **who("a"), **word(f"{number}", 0, name, 1, 1)})

    assert ledger.setbacks.steps == 4_000
    assert {len(shares["by"]) for shares in ledger.setbacks.shares.values()} == {128}
    assert len(pack(ledger.dump())) < MOST_BYTES / 4


def test_many_setbacks_leave_the_books_small() -> None:
    """Those that are closed are remembered as a few bytes each, and not for ever."""
    setbacks = Setbacks()
    for number in range(3_000):
        setbacks.add("t", word(f"{number}".rjust(253, "x"), 1, "a", 1))

    assert setbacks.count == 3_000
    assert len(orjson.dumps(setbacks.dump())) < 50_000


def test_sums_of_setbacks_end_where_numbers_do() -> None:
    """Neither many shares nor pushes on their way bring them beyond 2^53 or below 0."""
    setbacks, most = Setbacks(), 1 << 53
    for number in range(9):
        for holder in range(150):
            setbacks.add("t", word(f"{number % 3}", most, f"{holder}", most >> 4))
    assert (setbacks.steps, setbacks.records) == (most, most)
    assert max(setbacks.newest[0]["steps"], setbacks.newest[0]["records"]) == most
    setbacks = Setbacks()
    for number in range(9):
        setbacks.add("t", word(f"{number}", most, "a", 0))
    for number in range(9):
        setbacks.add("t", word(f"{number}", most, "a", 0, pending=most))

    assert (setbacks.steps, setbacks.records) == (0, 0)


def test_books_of_before_have_no_setbacks() -> None:
    """They can be read; those that have setbacks without shares can, too."""
    dumped = opened("a").dump()
    dumped["setbacks"] = {"count": 1, "steps": 2, "records": 3, "newest": []}
    ledger = Ledger("digits")
    ledger.load(dumped)
    assert ledger.setbacks.shown() == dumped["setbacks"]
    del dumped["setbacks"]
    ledger.load(dumped)

    assert ledger.setbacks.shown() == {"count": 0, "steps": 0, "records": 0, "newest": []}


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
