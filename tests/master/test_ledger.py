"""Facts about the ledger; the contract with the SDK is in tests/sdk/support/contract.py."""

from typing import Any

import orjson
import pytest

from master.commands import (
    Command,
    Describe,
    EndSettling,
    Evaluate,
    Expire,
    Join,
    Leave,
    Save,
    Saved,
    TakeOver,
    from_json,
)
from master.ledger import Ledger
from runtime.call_checks import RefusedError
from tests.master.ledger_calls import done, end_pauses, join, opened, ref, shape, who, work


def _refused(act: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        act()
    return caught.value


def test_epochs_do_not_overlap() -> None:
    """The second begins when the last task of the first is done, not when it is leased."""
    ledger = opened("a", "b", epochs=2)
    first = work(ledger, "a", 4)["tasks"]
    waits = work(ledger, "b", 1)
    done(ledger, "a", first)
    second = work(ledger, "b", 9)["tasks"]

    assert (waits["tasks"], waits["state"]) == ([], "wait")
    assert {lease["epoch"] for lease in second} == {1}
    assert len(second) == 4


def test_epochs_overlap_where_that_is_asked_for() -> None:
    """No trainer waits for the last task of an epoch."""
    ledger = opened("a", "b", epochs=3, overlap=True)
    work(ledger, "a", 4)

    assert {lease["epoch"] for lease in work(ledger, "b", 9)["tasks"]} == {1, 2}


def test_a_shuffled_data_set_is_whole() -> None:
    """Each task is leased once, in another order."""
    ledger = opened("a", records=200, shuffle_seed=3)
    starts = [lease["start"] for lease in work(ledger, "a", 99)["tasks"]]

    assert starts != sorted(starts)
    assert sorted(starts) == list(range(0, 200, 10))


def test_disruptions_use_up_no_budget() -> None:
    """A task that was returned, or lost with its trainer or process, is leased again."""
    ledger = opened("a", records=10)
    for number in range(9):
        lease = work(ledger, "a", 1)["tasks"][0]
        if number % 3 == 0:
            work(ledger, "a", back=[ref(lease)])
        elif number % 3 == 1:
            ledger.execute(Expire({"a": {}}))
            join(ledger, "a")
        else:
            ledger.execute(Expire(stuck={"a": {}}))

    assert work(ledger, "a", 1)["tasks"][0]["attempt"] == 10
    assert not ledger.dropped


def test_a_task_that_fails_too_often_is_dropped_and_named() -> None:
    """The job continues without it, and reports which record was at fault."""
    ledger = opened("a", records=20)
    for _ in range(3):
        lease = next(t for t in work(ledger, "a", 2)["tasks"] if t["start"] == 0)
        work(ledger, "a", failed=[{**ref(lease), "record": 7, "error": "ValueError: torn"}])
        for task, attempt in dict(ledger.require_trainer(*who("a").values()).leases).items():
            work(ledger, "a", back=[{"task": task, "attempt": attempt}])
        end_pauses(ledger)
    done(ledger, "a", work(ledger, "a", 9)["tasks"])

    assert ledger.dropped == [
        {"task": "train/0/0", "by": "a", "error": "record 7: ValueError: torn"}
    ]
    assert ledger.complete
    assert ledger.datasets["train"].progress()["dropped_records"] == 10
    assert ledger.state() == "done"


def test_training_ends_after_its_steps() -> None:
    """Whatever data is left; a stream has no other end."""
    ledger = Ledger("digits", max_steps=5)
    stream = {name: value for name, value in shape().items() if name != "records"}
    ledger.execute(Describe("train", {**stream, "stream": True}))
    join(ledger, "a")
    leases = work(ledger, "a", 2)["tasks"]
    done(ledger, "a", leases[:1], steps=4)
    second_answer = work(ledger, "a", 1)
    done(ledger, "a", leases[1:], steps=1)
    while_held = ledger.state()
    last = work(ledger, "a", 1, back=[ref(lease) for lease in second_answer["tasks"]])["state"]

    assert second_answer["state"] == "work"
    assert while_held == "working"
    assert (last, ledger.state()) == ("done", "done")


def test_the_export_comes_after_the_last_step() -> None:
    """Also where data is left; until then the state is "work"."""
    ledger = Ledger("digits", max_steps=1)
    ledger.execute(Describe("train", shape()))
    last = shape(records=1, task_records=1, kind="export")
    ledger.execute(Describe("final", last))
    join(ledger, "a")
    done(ledger, "a", work(ledger, "a", 1)["tasks"], steps=1)
    states = ledger.state(), ledger.directive()
    leases = work(ledger, "a", 9)["tasks"]
    done(ledger, "a", leases)

    assert states == ("working", "work")
    assert [lease["kind"] for lease in leases] == ["export"]
    assert ledger.state() == "done"


def test_unknown_tasks_are_distinguished_from_stale_ones() -> None:
    """A report of a task that does not exist changes nothing either."""
    ledger = opened("a", epochs=2)
    reports = ["train/0/0", "train/1/3", "train/2/0", "train/0/4", "train/x/0", "other/0/0", "x"]
    entries = [{"task": task, "attempt": 1} for task in reports]

    assert work(ledger, "a", done=entries)["results"] == [*["stale"] * 2, *["unknown"] * 5]
    assert work(ledger, "a", back=entries)["results"] == [*["stale"] * 2, *["unknown"] * 5]
    failed = [{**entry, "error": "e"} for entry in entries]
    assert work(ledger, "a", failed=failed)["results"] == [*["stale"] * 2, *["unknown"] * 5]


def test_a_call_of_the_past_is_refused() -> None:
    """Its answer is not stored any more."""
    ledger = opened("a")
    work(ledger, "a", 1, call=2)
    refused = _refused(lambda: work(ledger, "a", 1, call=1))

    assert (refused.status, refused.field) == (409, "call")


def test_what_was_trained_and_lost_is_counted() -> None:
    """Lost with a trainer or a process, returned half trained, or held by one that leaves."""
    ledger = opened("a", "b", "c", "d")
    tasks = {name: work(ledger, name, 1)["tasks"][0] for name in "abcd"}
    trained = {"a": {tasks["a"]["task"]: 3}}
    ledger.execute(Expire(trained))
    ledger.execute(Join("b", "b-2", trained={tasks["b"]["task"]: 4}))
    work(ledger, "c", back=[{**ref(tasks["c"]), "trained": 5}])
    ledger.execute(Leave(**who("d"), trained={tasks["d"]["task"]: 6}))

    assert ledger.lost_records == 3 + 4 + 5 + 6


def test_evaluations_come_before_training() -> None:
    """In the order of requests, with metrics weighted by records."""
    ledger = opened("a")
    test = shape(records=15, kind="evaluation", epochs=0)
    ledger.execute(Describe("test", test))
    ledger.execute(Evaluate(model_version=7, dataset="test"))
    leases = work(ledger, "a", 3)["tasks"]
    for lease, accuracy in zip(leases[:2], (0.5, 0.8), strict=True):
        done(ledger, "a", [lease], metrics={"accuracy": accuracy})

    assert [lease["dataset"] for lease in leases] == ["test", "test", "train"]
    assert {lease.get("model_version") for lease in leases[:2]} == {7}
    evaluation = ledger.datasets["test"].evaluations[0].to_json()
    assert (evaluation["records"], evaluation["complete"]) == (15, True)
    assert evaluation["metrics"]["accuracy"] == pytest.approx(0.6)
    assert work(ledger, "a", 1, kinds=["evaluation"])["state"] == "done"


def test_an_evaluation_of_something_else_is_refused() -> None:
    """Only data sets of that kind can be evaluated."""
    ledger = opened("a")
    for name in ("train", "nothing"):
        command = Evaluate(1, name)
        assert _refused(lambda command=command: ledger.execute(command)).field == "dataset"


def test_the_export_is_one_task_and_the_last() -> None:
    """Exactly one trainer gets it, when all else is done."""
    ledger = opened("a", "b", records=10)
    final = shape(records=1, task_records=1, kind="export")
    ledger.execute(Describe("final", final))
    training_leases = work(ledger, "a", 9)["tasks"]
    early = work(ledger, "b", 9)
    done(ledger, "a", training_leases)
    late = [work(ledger, name, 9)["tasks"] for name in "ab"]

    assert [lease["dataset"] for lease in training_leases] == ["train"]
    assert early["state"] == "wait"
    assert [[lease["kind"] for lease in tasks] for tasks in late] == [["export"], []]
    assert not ledger.complete


@pytest.mark.parametrize("end", [Expire({"a": {}}), Join("a", "a-2"), Leave("a", "a-1")])
def test_a_saver_that_is_gone_blocks_nobody(end: Command) -> None:
    """Its ticket is invalid, and a checkpoint that failed is not the newest."""
    ledger = opened("a", "b")
    first = ledger.execute(Save(**who("a")))
    ledger.execute(end)
    second = ledger.execute(Save(**who("b")))
    refused = _refused(lambda: ledger.execute(Saved(first["ticket"], "x", 1, ok=True)))
    ledger.execute(Saved(second["ticket"], "x", 1, ok=False))

    assert second["version"] > first["version"]
    assert (refused.status, refused.field) == (404, "ticket")
    assert ledger.checkpoint is None
    third = ledger.execute(Save(**who("b")))
    ledger.execute(Saved(third["ticket"], "x", 1, ok=True))
    newest = {"version": third["version"], "by": "b", "path": "x", "step": 1}
    assert ledger.checkpoint == newest


def test_a_new_master_waits_for_the_trainers_of_the_one_before() -> None:
    """It leases nothing new until all have joined, or their time is over."""
    ledger = opened("a", "b")
    leases = work(ledger, "a", 1)["tasks"]
    ledger.execute(TakeOver())
    join(ledger, "a", held=[ref(lease) for lease in leases])
    waits = work(ledger, "a", 1)
    ledger.execute(EndSettling())
    more_leases = work(ledger, "a", 9)["tasks"]

    assert (waits["tasks"], waits["state"]) == ([], "wait")
    assert len(more_leases) == 3
    assert done(ledger, "a", [*leases, *more_leases]) == ["accepted"] * 4


def test_what_a_trainer_has_forgotten_is_free_once_it_comes_to_a_new_master() -> None:
    """It returned the task after the snapshot: others need not wait for missed heartbeats."""
    ledger = opened("a", "b", records=30)
    held_lease, forgotten = work(ledger, "a", 2)["tasks"]
    ledger.execute(TakeOver())
    lost = join(ledger, "a", held=[ref(held_lease)])["lost"]
    join(ledger, "b")
    leases = {lease["task"]: lease["attempt"] for lease in work(ledger, "b", 9)["tasks"]}

    assert lost == []
    assert sorted(leases) == [forgotten["task"], "train/0/2"]
    assert leases[forgotten["task"]] > forgotten["attempt"]
    assert ledger.holds_lease(held_lease["task"], held_lease["attempt"], "a")


def test_a_trainer_that_joins_the_same_master_again_keeps_what_it_holds() -> None:
    """The answer that leased it may still be in flight."""
    ledger = opened("a", "b", records=10)
    (lease,) = work(ledger, "a", 1)["tasks"]
    join(ledger, "a")

    assert work(ledger, "b", 1)["tasks"] == []
    assert done(ledger, "a", [lease]) == ["accepted"]


def test_a_new_master_waits_for_no_saver_of_the_one_before() -> None:
    """Its checkpoint may be complete since the snapshot: it will not report it again."""
    ledger = opened("a", "b")
    old = ledger.execute(Save(**who("a")))
    ledger.execute(TakeOver())
    for name in "ab":
        join(ledger, name)
    new = ledger.execute(Save(**who("b")))

    assert (old["granted"], new["granted"]) == (True, True)
    assert new["version"] > old["version"]


def test_what_two_masters_leased_is_accepted_once_and_counted() -> None:
    """An acknowledgement is accepted, whoever leases the task now."""
    ledger = opened("a", "b", records=20)
    snapshot = orjson.loads(orjson.dumps(ledger.dump()))
    lease = work(ledger, "a", 1)["tasks"][0]
    done(ledger, "a", [lease])
    other = Ledger("digits")
    other.load(snapshot)
    other.execute(TakeOver())
    other.execute(EndSettling())
    join(other, "b")
    again = work(other, "b", 1)["tasks"][0]
    join(other, "a", done=[{**ref(lease), "steps": 1}])

    assert again["task"] == lease["task"]
    assert again["attempt"] > lease["attempt"]
    assert other.trained_again_records == 10
    assert done(other, "b", [again]) == ["stale"]
    assert other.datasets["train"].totals.records == 10
    last_leases = work(other, "a", 9)["tasks"]
    assert done(other, "a", last_leases) == ["accepted"]
    assert other.complete


def test_a_snapshot_is_small_whatever_the_data() -> None:
    """A thousand tasks of 10^9 records are done: the snapshot has some kilobytes."""
    ledger = opened("a", records=10**9, task_records=1000, shuffle_seed=5)
    for _ in range(100):
        done(ledger, "a", work(ledger, "a", 10)["tasks"])

    assert ledger.datasets["train"].totals.records == 10**6
    assert len(orjson.dumps(ledger.dump())) < 5_000


def _overflow(ledger: Ledger, kind: str) -> None:
    """Trainers repeatedly report the largest numbers for tasks with the most records."""
    most = 1 << 53
    for number in range(3):
        whole = shape(records=most, task_records=most, kind=kind)
        ledger.execute(Describe(f"{kind}-{number}", whole))
        if kind == "evaluation":
            about = {"dataset": f"{kind}-0", "model_version": number}
            ledger.execute(from_json({"do": "evaluate", **about}))
        lease = work(ledger, "a", 1, kinds=[kind])["tasks"][0]
        work(ledger, "a", back=[{**ref(lease), "trained": most}])
        lease = work(ledger, "a", 1, kinds=[kind])["tasks"][0]
        done(ledger, "a", [lease], steps=most, metrics={"loss": 1.0})


def test_no_sum_of_what_trainers_report_exceeds_json() -> None:
    """Steps and records of trainers and data sets, and those lost or dropped."""
    ledger = opened("a")
    for kind in ("evaluation", "training"):
        _overflow(ledger, kind)

    assert ledger.steps == ledger.lost_records == 1 << 53
    (trainer,) = ledger.trainers
    assert trainer.steps == trainer.records == 1 << 53
    assert orjson.loads(orjson.dumps(ledger.dump())) == ledger.dump()
    assert _largest(ledger.dump()) <= 1 << 53


def test_no_sum_of_what_failed_or_was_repeated_exceeds_json() -> None:
    """Three evaluations of the largest data set."""
    most = 1 << 53
    ledger = opened("a", "b")
    whole = shape(records=most, task_records=most, kind="evaluation", epochs=3)
    ledger.execute(Describe("test", whole))
    for _ in range(4):  # three failures in the first epoch; one that is dropped again has one
        lease = work(ledger, "a", 1, kinds=["evaluation"])["tasks"][0]
        work(ledger, "a", failed=[{**ref(lease), "error": "no"}])
        end_pauses(ledger)
        end_pauses(ledger)
    assert ledger.datasets["test"].totals.dropped_records == most
    lease = work(ledger, "a", 1, kinds=["evaluation"])["tasks"][0]
    done(ledger, "a", [lease])
    for attempt in (7, 8):
        join(ledger, "b", done=[{**ref(lease), "attempt": attempt}])

    assert ledger.trained_again_records == most


def _largest(value: Any) -> int:
    """The largest whole number in a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return max(map(_largest, value), default=0)
    return value if isinstance(value, int) else 0


def test_a_snapshot_whose_trainers_and_epochs_differ_can_be_resumed_from() -> None:
    """Epochs count: a lease that they do not know is none, one of an unknown trainer is returned."""
    ledger = opened("a", "b")
    work(ledger, "a", want=1)
    (leased,) = work(ledger, "b", want=1)["tasks"]
    torn = ledger.dump()
    torn["members"][0]["held"]["train/0/3"] = 1
    del torn["members"][1]
    resumed = Ledger("digits")
    resumed.load(torn)

    resumed.execute(TakeOver())
    resumed.execute(EndSettling())
    join(resumed, "c")
    tasks = {task["task"] for task in work(resumed, "c", want=9)["tasks"]}

    assert tasks == {f"train/0/{index}" for index in range(4)}
    assert leased["task"] in tasks
