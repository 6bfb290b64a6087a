"""Reports about the whole job: that it fails, and which work was lost with the model's state."""

from hashlib import sha512
from typing import NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.commands import Fail, LostShare, Rollback, from_json
from master.fence import MAX_BYTES, pack
from master.ledger import Ledger
from master.rollbacks import JobRollbacks
from runtime.call_checks import Json, RefusedError
from tests.master.ledger_calls import done, join, opened, ref, who, work
from tests.support.strategies import CALM


def test_a_job_that_a_trainer_ends_has_failed() -> None:
    """The first reason stays, whatever fails because of it; no more tasks are leased."""
    ledger = opened("a", "b")
    answer = ledger.execute(Fail(**who("a"), reason="the loss is nan"))
    ledger.execute(Fail(**who("b"), reason="a is gone"))

    assert answer == {"state": "failed"}
    assert (ledger.state(), ledger.failed) == ("failed", "a: the loss is nan")
    assert work(ledger, "b", 1)["state"] == "stop"
    assert ledger.directive() == "stop"


def test_a_job_that_is_done_does_not_fail_any_more() -> None:
    """Its model exists."""
    ledger = opened("a")
    done(ledger, "a", work(ledger, "a", 10)["tasks"])

    assert ledger.execute(Fail(**who("a"), reason="late")) == {"state": "done"}
    assert ledger.failed == ""


@pytest.mark.parametrize(
    "command",
    [
        Fail(**who("b"), reason="x"),
        Rollback(**who("b"), event="e", reason="x", steps=1, records=1),
    ],
    ids=["fail", "setback"],
)
def test_only_a_trainer_that_has_joined_can_say_so(command: Fail | Rollback) -> None:
    """Others change nothing."""
    ledger = opened("a")
    before = ledger.dump()
    with pytest.raises(RefusedError, match="has not joined"):
        ledger.execute(command)

    assert ledger.dump() == before


def test_rollbacks_are_summed_and_the_newest_are_kept() -> None:
    """Twenty of them, also in a restored ledger."""
    ledger = opened("a", "b")
    for number in range(25):
        trainer, reason = "ab"[number % 2], f"reason {number}"
        ledger.execute(Rollback(trainer, f"{trainer}-1", f"{number}", reason, 2, number))
    again = Ledger("digits")
    again.load(ledger.dump())
    rollbacks = again.rollbacks

    assert (rollbacks.count, rollbacks.steps, rollbacks.records) == (25, 50, 300)
    assert [event["reason"] for event in rollbacks.newest] == [f"reason {n}" for n in range(5, 25)]
    assert rollbacks.newest[-1] == {
        "by": "a",
        "event": "24",
        "reason": "reason 24",
        "steps": 2,
        "records": 24,
    }
    assert again.dump() == ledger.dump()


def rollback_report(event: str, steps: int, holder: str, own: int, pending: int = 0) -> Rollback:
    """The report of a trainer of parameter servers; each batch has ten records."""
    share = LostShare(holder, own, 10 * own, pending, 10 * pending)
    reason = "server 1 was restarted"
    return Rollback(
        **who("a"), event=event, reason=reason, steps=steps, records=10 * steps, share=share
    )


class Trainer(NamedTuple):
    """The batches of one trainer when servers went back."""

    lost: int
    pending: bool
    """Whether one was in flight."""
    applied: bool
    """Whether server 0 had applied that one."""
    versions_behind: int
    """By how many versions its last answer preceded the rollback."""


TRAINERS = st.builds(Trainer, st.integers(0, 4), st.booleans(), st.booleans(), st.integers(0, 3))


@CALM
@given(st.lists(TRAINERS, min_size=1, max_size=4), st.data())
def test_shares_of_all_trainers_are_exactly_what_is_lost(
    trainers: list[Trainer], data: st.DataObject
) -> None:
    """In any order, repeated, with batches in flight, and across a master's restart."""
    lost = sum(trainer.lost for trainer in trainers)
    reached = lost + sum(trainer.pending and trainer.applied for trainer in trainers)
    reports = [
        rollback_report(
            "generation-1",
            max(0, reached - trainer.versions_behind),
            str(place),
            trainer.lost,
            int(trainer.pending),
        )
        for place, trainer in enumerate(trainers)
    ]
    rollbacks = JobRollbacks()
    for report in data.draw(
        st.permutations(reports + data.draw(st.lists(st.sampled_from(reports))))
    ):
        rollbacks.add(report)
        rollbacks = JobRollbacks.load(rollbacks.dump())

    assert (rollbacks.count, rollbacks.steps, rollbacks.records) == (1, lost, 10 * lost)
    assert rollbacks.newest[0]["steps"] == lost


def test_what_only_a_trainer_knew_that_has_left_is_counted_by_versions() -> None:
    """The others were answered later; their own batches in flight are subtracted."""
    rollbacks = JobRollbacks()
    rollbacks.add(rollback_report("e", 7, "a", 1, pending=1))
    rollbacks.add(rollback_report("e", 6, "b", 2))

    assert (rollbacks.steps, rollbacks.records) == (6, 60)


def test_shares_of_every_open_rollback_add_up() -> None:
    """A trainer was away, and reports twenty at once; repeated reports count once."""
    rollbacks = JobRollbacks()
    reports = [
        rollback_report(f"{n}", 100, holder, 100)
        for holder in ("a", "b", "b", "a")
        for n in range(20)
    ]
    for report in reports:
        rollbacks.add(report)
        rollbacks = JobRollbacks.load(rollbacks.dump())

    assert (rollbacks.count, rollbacks.steps, rollbacks.records) == (20, 4_000, 40_000)
    assert "shares" not in rollbacks.to_json()


def test_a_report_of_a_closed_rollback_does_not_count() -> None:
    """Its answer may have been lost; also across a master's restart."""
    rollbacks = JobRollbacks()
    for number in range(100):
        rollbacks.add(rollback_report(f"{number}", 10, "a", 10))
        rollbacks = JobRollbacks.load(rollbacks.dump())
    for number in range(80):
        rollbacks.add(rollback_report(f"{number}", 10, "a", 10))

    assert (rollbacks.count, rollbacks.steps, rollbacks.records) == (100, 1_000, 10_000)
    assert [event["event"] for event in rollbacks.newest] == [f"{n}" for n in range(80, 100)]


def test_rollbacks_of_snapshots_with_three_shares_continue() -> None:
    """An older event's share is part of its cost: the largest report of it counts."""
    newest = [
        {"by": "a", "event": f"{n}", "reason": "r", "steps": 5, "records": 50} for n in range(4)
    ]
    share = {"steps": 5, "records": 50, "pending_steps": 0, "pending_records": 0}
    shares = {f"{n}": {"most": {"steps": 5, "records": 50}, "by": {"a": share}} for n in (1, 2, 3)}
    dumped: Json = {"count": 4, "steps": 20, "records": 200, "newest": newest, "shares": shares}
    rollbacks = JobRollbacks.load(dumped)
    rollbacks.add(rollback_report("0", 5, "a", 5))
    assert (rollbacks.steps, rollbacks.records) == (20, 200)
    for number in (0, 3):
        rollbacks.add(rollback_report(f"{number}", 5, "b", 4))

    assert (rollbacks.count, rollbacks.steps, rollbacks.records) == (4, 28, 280)


def test_many_holders_leave_the_snapshot_small() -> None:
    """Their names are as long as possible; their shares count all the same."""
    ledger = opened("a")
    for number in range(20):
        for holder in range(200):
            name = f"{sha512(b'%d' % holder).hexdigest()}{number}".ljust(253, "x")
            ledger.execute(rollback_report(f"{number}", 0, name, 1, 1))

    assert ledger.rollbacks.steps == 4_000
    assert {len(shares["by"]) for shares in ledger.rollbacks.shares.values()} == {128}
    assert len(pack(ledger.dump())) < MAX_BYTES / 4


def test_many_rollbacks_leave_the_snapshot_small() -> None:
    """Closed ones are stored as a few bytes each, and not for ever."""
    rollbacks = JobRollbacks()
    for number in range(3_000):
        rollbacks.add(rollback_report(f"{number}".rjust(253, "x"), 1, "a", 1))

    assert rollbacks.count == 3_000
    assert len(orjson.dumps(rollbacks.dump())) < 50_000


def test_sums_of_rollbacks_end_where_numbers_do() -> None:
    """Many shares and pushes in flight keep them within 0 to 2^53."""
    rollbacks, most = JobRollbacks(), 1 << 53
    for number in range(9):
        for holder in range(150):
            rollbacks.add(rollback_report(f"{number % 3}", most, f"{holder}", most >> 4))
    assert (rollbacks.steps, rollbacks.records) == (most, most)
    assert max(rollbacks.newest[0]["steps"], rollbacks.newest[0]["records"]) == most
    rollbacks = JobRollbacks()
    for number in range(9):
        rollbacks.add(rollback_report(f"{number}", most, "a", 0))
    for number in range(9):
        rollbacks.add(rollback_report(f"{number}", most, "a", 0, pending=most))

    assert (rollbacks.steps, rollbacks.records) == (0, 0)


def test_older_snapshots_have_no_rollbacks() -> None:
    """They can be loaded, as can those with rollbacks without shares."""
    dumped = opened("a").dump()
    dumped["setbacks"] = {"count": 1, "steps": 2, "records": 3, "newest": []}
    ledger = Ledger("digits")
    ledger.load(dumped)
    assert ledger.rollbacks.to_json() == dumped["setbacks"]
    del dumped["setbacks"]
    ledger.load(dumped)

    assert ledger.rollbacks.to_json() == {"count": 0, "steps": 0, "records": 0, "newest": []}


def test_what_the_next_process_goes_on_with_is_not_lost() -> None:
    """Neither what it holds nor what it reports as done; other work of the old one is."""
    ledger = opened("a")
    held_lease, done_lease, lost_lease, stale_lease = work(ledger, "a", 4)["tasks"]
    trained = {lease["task"]: 4 for lease in (held_lease, done_lease, lost_lease, stale_lease)}
    new = {"trainer": "a", "incarnation": "a-2", "trained": trained}
    leases = [ref(held_lease), {**ref(stale_lease), "attempt": stale_lease["attempt"] + 1}]
    ledger.execute(from_json({"do": "join", **new, "held": leases, "done": [ref(done_lease)]}))

    assert ledger.lost_records == 8
    assert ledger.datasets["train"].progress()["done_records"] == 10
    assert ledger.holds_lease(held_lease["task"], held_lease["attempt"], "a")


def test_a_process_that_knows_nothing_of_the_one_before_loses_its_work() -> None:
    """As for a new trainer."""
    ledger = opened("a")
    (lease,) = work(ledger, "a", 1)["tasks"]
    join(ledger, "a", incarnation="a-2", trained={lease["task"]: 7})

    assert ledger.lost_records == 7
