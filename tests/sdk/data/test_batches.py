import json
import sys
import threading
from collections import Counter, deque
from typing import Any

import edl
import pytest
from edl import DataError, MasterError, Refused, Settings

from tests.sdk.conftest import Join
from tests.sdk.support.fake_master import Json
from tests.sdk.support.loops import LIMIT_S, flat, numbers, run_after_each, tasks, until
from tests.sdk.support.master_server import Handler, Server

_NOBODY = edl.Session(Settings("http://127.0.0.1:1", "token", "trainer-0"))
"""Never joins."""


def test_one_trainer_gets_every_record_of_every_epoch_once(server: Server, join: Join) -> None:
    """Two epochs of 100 records: each record comes twice, and every task is acknowledged once."""
    records = flat(edl.batches(numbers(100), 8, epochs=2, member=join()))

    assert Counter(range(100)) + Counter(range(100)) == Counter(records)
    assert {1} == {task.accepted for task in server.master.state.tasks.values()}


def test_the_job_says_how_often_where_the_program_does_not(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EDL_EPOCHS is for training alone; what the program says counts before it."""
    monkeypatch.setenv("EDL_EPOCHS", "3")

    assert len(flat(edl.batches(numbers(10), 5, member=join()))) == 30
    assert edl.batches(numbers(10), 5, epochs=2, member=_NOBODY).description["epochs"] == 2
    evaluation = edl.batches(numbers(10), 5, kind="evaluation", member=_NOBODY)
    assert evaluation.description["epochs"] == 1


def test_epochs_of_the_job_that_are_no_number_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first call."""
    monkeypatch.setenv("EDL_EPOCHS", "many")

    with pytest.raises(edl.EdlError, match="EDL_EPOCHS is 'many': write a whole number"):
        edl.batches(numbers(10), 5, member=_NOBODY)


def test_batches_are_full_but_where_an_epoch_ends(join: Join) -> None:
    """A batch may span tasks, never epochs."""
    loop = edl.batches(numbers(50), 8, epochs=2, task_records=5, member=join())
    sizes = [(loop.epoch, len(batch)) for batch in loop]

    assert sum(size for _, size in sizes) == 100
    assert {(0, 8), (1, 8)} <= set(sizes)


def test_a_task_is_acknowledged_only_after_the_step_on_its_last_record(
    server: Server, join: Join
) -> None:
    """While the program trains on the last batch of a task, the task is not reported as done."""
    steps = iter(edl.batches(numbers(8), 4, task_records=4, member=join()))
    next(steps)
    beats = len(server.bodies("/v1/heartbeat"))
    until(lambda: len(server.bodies("/v1/heartbeat")) >= beats + 3)

    assert [body for body in server.bodies("/v1/work") if body["done"]] == []

    next(steps)
    until(lambda: any(body["done"] for body in server.bodies("/v1/work")))

    assert list(steps) == []
    assert all(task.done for task in server.master.state.tasks.values())


def test_the_first_call_leaves_work_for_others(server: Server, join: Join) -> None:
    """It leases what it may read ahead, not all that there is."""
    member = join()
    loop = edl.batches(numbers(4000), 4, task_records=8, prefetch=4, member=member)
    next(iter(loop))
    loop.close()

    assert server.bodies("/v1/work")[0] == {
        "trainer": "trainer-0",
        "incarnation": member.incarnation,
        "done": [],
        "failed": [],
        "back": [],
        "want": 2,
        "wait_s": 5.0,
        "datasets": ["train"],
        "kinds": ["training"],
        "call": 1,
    }


def test_trainers_share_a_data_set(server: Server, join: Join) -> None:
    """Three trainers at once: together they get every record once, and each ends by itself."""
    trained: Counter[int] = Counter()
    lock = threading.Lock()

    def train(name: str) -> None:
        for batch in edl.batches(numbers(300), 5, task_records=10, member=join(name)):
            with lock:
                trained.update(batch)

    threads = [threading.Thread(target=train, args=(f"trainer-{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)

    assert Counter(range(300)) == trained
    assert {1} == {task.accepted for task in server.master.state.tasks.values()}


@pytest.mark.usefixtures("patient")
def test_leaving_the_loop_hands_back_what_was_not_acknowledged(server: Server, join: Join) -> None:
    """After `break` no task is held, and the one in hand is not done."""
    for _ in edl.batches(numbers(64), 8, task_records=8, member=join()):
        break

    tasks = server.master.state.tasks.values()
    assert {None} == {task.holder for task in tasks}
    assert {None} == {task.done for task in tasks}


def test_a_loop_that_has_not_begun_may_be_closed(server: Server, join: Join) -> None:
    """Nobody was called, and nothing is to be handed back."""
    edl.batches(numbers(10), 5, member=join()).close()

    assert server.calls == []


@pytest.mark.usefixtures("patient")
def test_an_error_in_the_loop_hands_back_too(server: Server, join: Join) -> None:
    """A step that raises leaves its records to others."""
    loop = edl.batches(numbers(64), 8, task_records=8, member=join())
    with pytest.raises(ZeroDivisionError), loop:
        run_after_each(loop, lambda: 1 // 0)

    assert {None} == {task.holder for task in server.master.state.tasks.values()}


def test_a_record_that_cannot_be_read_is_named_and_the_loop_goes_on(
    server: Server, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    """The task fails three times, is dropped, and all others are trained."""

    def read(number: int) -> int:
        if number == 13:
            raise ValueError("no such image")
        return number

    data = edl.from_function("train", read, 40)
    records = flat(edl.batches(data, 4, task_records=4, member=join()))

    bad = server.master.state.tasks["train/0/3"]
    assert set(range(40)) - {12, 13, 14, 15} <= set(records)
    assert bad.dropped
    assert {13} == {failure["record"] for failure in bad.failures}
    assert "record 13: ValueError: no such image" in caplog.text


def test_a_batch_that_cannot_be_made_fails_its_tasks(server: Server, join: Join) -> None:
    """A collate function that raises names no record, but ends no loop."""

    def collate(records: list[int]) -> list[int]:
        if 5 in records:
            raise ValueError("shapes differ")
        return records

    data = edl.from_function("train", int, 16, collate)
    trained = flat(edl.batches(data, 4, task_records=4, member=join()))

    assert 5 not in trained
    assert (
        "ValueError: shapes differ" in server.master.state.tasks["train/0/1"].failures[0]["error"]
    )


def test_a_data_set_described_twice_differently_is_refused(join: Join) -> None:
    """The error names the field that differs."""
    flat(edl.batches(numbers(8), 4, member=join("trainer-0")))
    with pytest.raises(Refused, match="another epochs"):
        flat(edl.batches(numbers(8), 4, epochs=2, member=join("trainer-1")))


def test_a_wrong_token_ends_the_program_at_once(server: Server) -> None:
    """401 is never retried."""
    member = edl.Session(edl.Settings(server.url, "wrong", "trainer-0"))
    with pytest.raises(Refused, match="token"):
        flat(edl.batches(numbers(8), 4, member=member))


def test_the_job_must_be_the_right_one(server: Server, join: Join) -> None:
    """EDL_JOB is checked against what the master serves; the other job's is left at once."""
    with pytest.raises(Refused) as caught:
        join(job="faces").join()

    assert str(caught.value) == "EDL_JOB is 'faces', but the master serves 'digits' (409)"
    assert (caught.value.status, caught.value.field) == (409, "job")
    assert [body["back"] for body in server.bodies("/v1/leave")] == [[]]


def test_metrics_are_means_over_the_records_of_a_task(server: Server, join: Join) -> None:
    """An evaluation has a model version, and reports metrics by `report`."""
    loop = edl.batches(numbers(8), 2, task_records=8, kind="evaluation", member=join())
    for batch in loop:
        assert loop.model_version == 7
        assert loop.records == 2
        loop.report(accuracy=batch[0] / 2, loss=float("nan"))

    done = [entry for body in server.bodies("/v1/work") for entry in body["done"]]
    assert [entry["metrics"] for entry in done] == [{"accuracy": 1.5}]
    assert [(entry["records"], entry["steps"]) for entry in done] == [(8, 4)]


def test_one_loop_may_run_inside_another(server: Server, join: Join) -> None:
    """An evaluation in the middle of an epoch: both get all of their records."""
    member = join()
    held_out = edl.from_function("test", int, 12)
    trained, checked = [], []
    for place, batch in enumerate(edl.batches(numbers(40), 4, member=member)):
        trained += batch
        if place == 3:
            checked = flat(edl.batches(held_out, 4, kind="prediction", member=member))

    assert list(range(40)) == sorted(trained)
    assert list(range(12)) == sorted(checked)
    assert {1} == {task.attempt for task in tasks(server)}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"batch_size": 0}, "batch_size is 0: it must be at least 1"),
        ({"epochs": 0}, "epochs is 0: it must be at least 1"),
        ({"epochs": -1, "kind": "evaluation"}, "epochs is -1: it must be at least 0"),
        ({"prefetch": 0}, "prefetch is 0: it must be at least 1"),
        ({"task_records": 0}, "task_records is 0: it must be at least 1"),
        (
            {"kind": "guessing"},
            "kind is 'guessing': it must be one of training, evaluation, prediction",
        ),
    ],
)
def test_arguments_that_cannot_be_are_named(join: Join, wrong: dict[str, Any], text: str) -> None:
    """One line names the argument and its range."""
    with pytest.raises(DataError) as caught:
        edl.batches(numbers(8), **{"batch_size": 4, "member": join(), **wrong})

    assert str(caught.value) == text


def test_what_is_about_the_batch_in_hand_needs_one(join: Join) -> None:
    """Outside of the loop there is none; and a loop runs once."""
    loop = edl.batches(numbers(8), 4, member=join())
    with pytest.raises(DataError) as caught:
        _ = loop.epoch
    assert str(caught.value) == "there is no current batch: use this only inside the loop"
    flat(loop)
    with pytest.raises(DataError) as caught:
        flat(loop)
    assert str(caught.value) == "this loop was already iterated: call edl.batches again for another"


def test_a_lease_that_nobody_asked_for_ends_the_loop(server: Server, join: Join) -> None:
    """A master of another protocol must not be trained for."""

    def foreign(_: Handler, answer: Json) -> bool:
        for task in answer["tasks"]:
            task["dataset"] = "other"
        return False

    server.faults["/v1/work"] = deque([foreign])
    with pytest.raises(MasterError) as caught:
        flat(edl.batches(numbers(8), 4, member=join()))

    assert str(caught.value) == "the master leased train/0/0, which is not a task of this loop"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_reader_that_wants_to_exit_ends_the_loop(join: Join) -> None:
    """`sys.exit` in a reader's thread would otherwise leave the loop waiting for ever."""
    data = edl.from_function("train", lambda _: sys.exit("no"), 8)
    with pytest.raises(DataError, match="the reader thread failed: SystemExit"):
        flat(edl.batches(data, 4, member=join()))


def test_a_reader_that_breaks_is_named_without_a_record(server: Server, join: Join) -> None:
    """A source of the program's own may raise anything, anywhere."""

    class Broken:
        def shape(self) -> Json:
            return {"records": 4}

        def read(self, file: str | None, start: int, end: int) -> list[int]:
            raise OSError(f"{file}: the disk is gone, {start} to {end}")

        def batch(self, blocks: Any) -> Any:
            return blocks

    loop = edl.batches(edl.Dataset("train", Broken()), 4, member=join())
    assert flat(loop) == []

    failure = server.master.state.tasks["train/0/0"].failures[0]
    assert failure["error"] == "OSError: None: the disk is gone, 0 to 4"
    assert "record" not in failure


def test_tasks_fit_their_data_set() -> None:
    """Some for each trainer even where there is little; eight batches at most."""
    sizes = {}
    for records in (8, 640, 100_000, None):
        loop = edl.batches(numbers(records), 4, member=_NOBODY)
        sizes[records] = loop.description["task_records"]

    assert sizes == {8: 4, 640: 8, 100_000: 32, None: 32}


def test_a_data_set_is_described_by_what_was_asked_for() -> None:
    """All trainers must send the same description, so it contains the defaults too."""
    plain = edl.batches(numbers(1000), 4, member=_NOBODY).description
    changes: dict[str, Any] = {
        "task_records": 7,
        "epochs": 0,
        "shuffle_seed": 3,
        "kind": "evaluation",
        "overlap": True,
    }
    changed = edl.batches(numbers(1000), 4, member=_NOBODY, **changes).description

    assert json.dumps(plain) == (
        '{"records": 1000, "task_records": 12, "epochs": 1, "shuffle_seed": null, '
        '"kind": "training", "overlap": false}'
    )
    assert changed == {"records": 1000, **changes}


def test_no_thread_keeps_a_program_from_its_end(join: Join) -> None:
    """Whatever ends the main thread ends the process: ours wait for nothing."""
    steps = iter(edl.batches(numbers(64), 4, task_records=4, prefetch=1, member=join()))
    next(steps)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("edl-")]

    assert {"edl-heartbeat", "edl-fetcher", "edl-reader"} <= {thread.name for thread in threads}
    assert [thread.name for thread in threads if not thread.daemon] == []


def test_an_idle_loop_says_so(server: Server, join: Join) -> None:
    """While another holds what is left of the epoch, the loop yields None, and the end at the end."""
    data = numbers(8)
    other = iter(edl.batches(data, 4, task_records=4, member=join("trainer-1"), prefetch=1))
    theirs = [next(other)]
    loop = iter(edl.batches(data, 4, task_records=4, member=join(), idle_s=0.02, prefetch=1))
    first_batches = [next(loop) for _ in range(4)]

    assert None in first_batches
    theirs += list(other)
    last_batches = list(loop)
    assert sorted(
        n for batch in [*theirs, *first_batches, *last_batches] if batch for n in batch
    ) == list(range(8))
    assert len(tasks(server)) == 2
