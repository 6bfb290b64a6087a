"""What failed tasks cost: bad records, bad data, and storage that is away for a while.

A job in virtual time: trainers lease, read and acknowledge tasks every 50 ms, and the pauses are those
of the service.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from master.commands import Describe, EndOutage, EndTicket, Retry, Save, Saved, from_json
from master.ledger import Ledger
from master.liveness import Liveness
from master.rendezvous import Rendezvous
from master.retry_pauses import OUTAGE_S, TICKET_S, RetryPauses
from master.status import ServiceCounters, report
from runtime.call_checks import Json, RefusedError
from tests.master.ledger_calls import done, end_pauses, join, opened, ref, shape, who, work

Read = Callable[[Json, float], str]
"""Lease and time -> the error of reading its records, or ""."""
STALE = "OSError: [Errno 116] Stale file handle"


class Job:
    """Trainers of one ledger, in virtual time."""

    def __init__(
        self,
        trainers: int,
        read: Read,
        *,
        transient: bool = False,
        step_s: float = 0.05,
        **changes: Any,
    ) -> None:
        self.ledger = Ledger("digits")
        self.ledger.execute(Describe("train", shape(**changes)))
        self.names = [f"trainer-{number}" for number in range(trainers)]
        for name in self.names:
            join(self.ledger, name)
        self.read, self.transient, self.step_s = read, transient, step_s
        self.pauses = RetryPauses()
        self.now_s = 0.0
        self.reads: Counter[str] = Counter()

    def run(self, max_s: float = 3_000.0) -> str:
        """Runs to the job's end, and returns its state."""
        while self.ledger.state() == "working" and self.now_s < max_s:
            self.step()
        return self.ledger.state()

    def step(self) -> None:
        """All trainers read and train one task, if they get one."""
        self.now_s += self.step_s
        for name in self.names:
            for lease in work(self.ledger, name, 1)["tasks"]:
                self.reads[lease["task"]] += 1
                error = self.read(lease, self.now_s)
                if error:
                    report = {**ref(lease), "error": error, "transient": self.transient}
                    work(self.ledger, name, failed=[report])
                else:
                    done(self.ledger, name, [lease])
        for command in (
            self.pauses.retry(self.ledger, self.now_s),
            self.pauses.outage(self.ledger, OUTAGE_S, self.now_s),
        ):
            if command is not None:
                self.ledger.execute(command)

    @property
    def progress(self) -> Json:
        """The data set's progress."""
        return self.ledger.datasets["train"].progress()


def _away(begin_s: float, end_s: float) -> Read:
    return lambda _, now_s: STALE if begin_s <= now_s < end_s else ""


def _bad(*starts: int) -> Read:
    return lambda lease, _: "ValueError: torn" if lease["start"] in starts else ""


@pytest.mark.parametrize("begin_s", [0.0, 0.4])
@pytest.mark.parametrize(("trainers", "tasks"), [(16, 1000), (1, 64), (2, 3)])
def test_storage_that_is_away_for_five_seconds_costs_no_record(
    begin_s: float, trainers: int, tasks: int
) -> None:
    """At the start or in the midst, with many trainers or one; three failures were the end before."""
    job = Job(trainers, _away(begin_s, begin_s + 5), transient=True, records=10 * tasks)

    assert job.run() == "done"
    assert not job.ledger.dropped
    assert job.progress["done_records"] == 10 * tasks
    assert job.now_s < 30


def test_an_outage_of_minutes_is_said_and_leaves_little_to_remember() -> None:
    """Tasks that were never leased wait, and the status has the error until a task is done."""
    job = Job(16, _away(5, 300), transient=True, step_s=1.0, records=1_000_000)
    while job.now_s < 299:
        job.step()

    assert job.progress["outage"] == STALE
    assert 3 <= job.progress["failing_tasks"] <= 32
    assert max(job.reads.values()) < 20
    while job.now_s < 340:
        job.step()
    assert job.progress["outage"] == ""
    assert not job.ledger.dropped


def test_storage_that_stays_away_fails_the_job_with_its_error() -> None:
    """After ten minutes, or what the master's settings say."""
    job = Job(2, _away(1, 1e9), transient=True, step_s=0.5, records=10_000)

    assert job.run() == "failed"
    assert job.ledger.failed.startswith("no task of train could be read for 6")
    assert job.ledger.failed.endswith(STALE)
    assert OUTAGE_S < job.now_s < OUTAGE_S + 40  # with the failure that follows the longest pause


def test_errors_of_a_program_in_the_midst_of_a_job_are_an_outage_too() -> None:
    """Not all clients of storage raise OSError: where tasks were done before, it may pass."""
    read: Read = lambda _, now_s: "EndpointConnectionError: no route" if 1 <= now_s < 6 else ""  # noqa: E731
    job = Job(4, read, records=4_000)

    assert job.run() == "done"
    assert not job.ledger.dropped


def test_one_bad_record_in_ninety_epochs_is_one_bad_record() -> None:
    """It is dropped in each epoch, tried once in the later ones, and named once in the end."""
    job = Job(2, _bad(30), records=90, epochs=90)

    assert job.run() == "done"
    assert job.progress["dropped_tasks"] == 90
    assert {entry["task"].split("/")[2] for entry in job.ledger.dropped} == {"3"}
    assert sum(n for task, n in job.reads.items() if task.endswith("/3")) == 3 + 89


def test_one_bad_record_is_one_where_each_epoch_has_it_in_another_task() -> None:
    """Epochs that permute records count the record, and try its task once in the later epochs."""
    job = Job(2, lambda _, __: "", records=90, epochs=90, record_order="feistel-1 f00d")
    for epoch in range(90):
        bad = epoch % 9
        tries = 0
        while job.progress["epoch"] == epoch:
            for lease in work(job.ledger, "trainer-0", 1)["tasks"]:
                if lease["task"] == f"train/{epoch}/{bad}":
                    tries += 1
                    failed = {**ref(lease), "error": "its checksum is wrong", "record": 30}
                    work(job.ledger, "trainer-0", failed=[{**failed, "transient": False}])
                else:
                    done(job.ledger, "trainer-0", [lease])
            end_pauses(job.ledger)
        assert tries == (1 if epoch else 3)

    assert job.ledger.state() == "done"
    assert job.progress["dropped_tasks"] == 90


def test_a_record_that_can_be_read_again_has_its_failures_back() -> None:
    """A task that was dropped and is done in a later epoch counts as sound."""
    job = Job(
        1,
        lambda lease, _: "ValueError" if lease["task"] == "train/0/3" else "",
        records=90,
        epochs=2,
    )

    assert job.run() == "done"
    assert (job.progress["dropped_tasks"], job.ledger.datasets["train"].dropped) == (1, {})


@pytest.mark.parametrize(
    ("tasks", "reason"),
    [
        (1, "no task of train was done: all were dropped, the last of them train/0/0: ValueError"),
        (9, "2 of 9 tasks of train were dropped, the last of them train/0/1: ValueError"),
        (1000, "16 tasks of train failed, and none was done, the last of them train/0/15: "),
    ],
)
def test_data_that_is_bad_as_a_whole_fails_the_job_soon(tasks: int, reason: str) -> None:
    """With the cause: nothing trained is no success."""
    job = Job(1, lambda _lease, _now_s: "ValueError: torn", records=10 * tasks)

    assert job.run() == "failed"
    assert job.ledger.failed.startswith(reason)
    assert job.now_s < 10


def test_a_bad_record_of_the_only_task_leaves_those_before_it() -> None:
    """They are trained and counted: the job has a model of nine records of ten."""
    ledger = opened("a", records=10)
    failure = {"error": "ValueError: torn", "record": 9, "transient": False}
    for counted in (9, 0, 0):
        (lease,) = work(ledger, "a", want=1)["tasks"]
        failed = [{**ref(lease), **failure, "counted": counted}]
        assert work(ledger, "a", failed=failed)["results"] == ["accepted"]
        end_pauses(ledger)

    assert ledger.state() == "done"
    progress = ledger.datasets["train"].progress()
    assert (progress["done_records"], progress["dropped_records"]) == (9, 1)


@pytest.mark.parametrize(("bad", "state"), [(10, "done"), (11, "failed")])
def test_a_share_of_the_data_may_be_bad(bad: int, state: str) -> None:
    """One percent of the tasks by default, whatever their number."""
    starts = range(0, 100 * bad, 100)

    assert Job(4, _bad(*starts), records=10_000).run() == state


def test_a_failed_task_is_leased_last_and_to_another_trainer() -> None:
    """Only where no other takes it, the one that failed tries again."""
    ledger = opened("a", "b")
    first = work(ledger, "a", 1)["tasks"][0]
    work(ledger, "a", failed=[{**ref(first), "error": "e", "transient": False}])
    assert work(ledger, "a", 9)["tasks"][0]["task"] == "train/0/1"
    assert work(ledger, "b", 9)["state"] == "wait"
    end_pauses(ledger)
    assert work(ledger, "a", 9)["tasks"] == []
    again = work(ledger, "b", 9)["tasks"]
    assert [lease["task"] for lease in again] == ["train/0/0"]
    work(ledger, "b", failed=[{**ref(again[0]), "error": "e", "transient": False}])
    end_pauses(ledger)
    assert work(ledger, "b", 9)["tasks"] == []
    end_pauses(ledger)

    assert [lease["task"] for lease in work(ledger, "b", 9)["tasks"]] == ["train/0/0"]


def test_a_failed_task_of_a_stream_does_not_wait_for_its_end() -> None:
    """There is none."""
    ledger = Ledger("digits")
    stream = {name: value for name, value in shape().items() if name != "records"}
    ledger.execute(Describe("train", {**stream, "stream": True}))
    join(ledger, "a")
    first = work(ledger, "a", 1)["tasks"][0]
    work(ledger, "a", failed=[{**ref(first), "error": "e", "transient": False}])
    end_pauses(ledger)

    assert work(ledger, "a", 1)["tasks"][0]["task"] == first["task"]


def test_a_snapshot_keeps_pauses_and_who_failed() -> None:
    """A ledger that was restored executes the same commands with the same answers."""
    ledger = opened("a", "b")
    for _ in range(2):
        lease = work(ledger, "a", 1)["tasks"][0]
        work(ledger, "a", failed=[{**ref(lease), "error": "e", "transient": True}])
    ledger.execute(Retry(["train/0/1"], []))
    restored = Ledger("digits")
    restored.load(ledger.dump())

    assert restored.dump() == ledger.dump()
    assert list(restored.failing()) == list(ledger.failing())
    assert [t["task"] for t in work(restored, "b", 9)["tasks"]][-1] == "train/0/1"


def test_commands_of_pauses_that_came_too_late_change_nothing() -> None:
    """Their task was done, leased or dropped meanwhile, or its outage is over."""
    ledger = opened("a")
    done(ledger, "a", work(ledger, "a", 1)["tasks"])
    before = ledger.dump()
    ledger.execute(Retry(["train/0/0", "train/9/9"], ["train/0/0", "train/0/1", "gone/0/0"]))
    ledger.execute(EndOutage("train", 700))
    ledger.execute(EndTicket("0-1"))

    assert ledger.dump() == before


def test_asking_before_there_is_a_data_set_waits() -> None:
    """A trainer in another language must not take an empty job for one that is done."""
    ledger = Ledger("digits")
    join(ledger, "a")
    assert work(ledger, "a", 1)["state"] == "wait"
    assert work(ledger, "a", 1, datasets=["train"])["state"] == "wait"
    ledger.execute(Describe("train", shape(records=10)))
    assert work(ledger, "a", 1, datasets=["other"])["state"] == "wait"
    done(ledger, "a", work(ledger, "a", 1)["tasks"])

    assert work(ledger, "a", 1, datasets=["other"])["state"] == "done"


def test_an_evaluation_of_a_version_is_done_once() -> None:
    """However often it is requested, before and after it is complete."""
    ledger = opened("a")
    ledger.execute(Describe("test", shape(records=10, kind="evaluation", epochs=0)))
    for version in (10, 10, 20, 10, 30):
        ledger.execute(from_json({"do": "evaluate", "dataset": "test", "model_version": version}))
    leases = work(ledger, "a", 1, kinds=["evaluation"])["tasks"]
    done(ledger, "a", leases, metrics={"accuracy": 0.5})
    leases = work(ledger, "a", 1, kinds=["evaluation"])["tasks"]
    done(ledger, "a", leases, metrics={"left": 1.0})
    for version in (10, 20):
        ledger.execute(from_json({"do": "evaluate", "dataset": "test", "model_version": version}))

    # the second ended without a result: its model was gone
    assert [e.model_version for e in ledger.datasets["test"].evaluations] == [10, 20, 30, 20]


def test_the_ticket_of_a_saver_that_hangs_ends() -> None:
    """Its trainer may live: another one writes the next checkpoint, and the late report is refused."""
    ledger, pauses = opened("a", "b"), RetryPauses()
    ticket = ledger.execute(Save(**who("a")))["ticket"]
    assert pauses.ticket(ledger.ticket, 0.0) is None
    assert pauses.ticket(ledger.ticket, TICKET_S) is None
    command = pauses.ticket(ledger.ticket, TICKET_S + 1)
    assert command == EndTicket(ticket)
    ledger.execute(command)

    assert ledger.execute(Save(**who("b")))["granted"] is True
    with pytest.raises(RefusedError, match="no longer valid"):
        ledger.execute(Saved(ticket, "/models/1", 1, ok=True))


def test_a_ticket_lasts_as_long_as_checkpoints_of_the_job_take() -> None:
    """Three times the longest before."""
    pauses = RetryPauses()
    pauses.ticket("1-1", 0.0)
    pauses.ticket("", 500.0)
    pauses.ticket("1-2", 1_000.0)

    assert pauses.ticket("1-2", 2_400.0) is None
    assert pauses.ticket("1-2", 2_501.0) == EndTicket("1-2")


def test_savers_that_hang_one_after_the_other_are_waited_for_alike() -> None:
    """Storage that hangs is no checkpoint that took long: the next is not waited for three times as long."""
    pauses, now_s = RetryPauses(), 0.0
    for number in range(5):
        ticket = f"1-{number}"
        assert pauses.ticket(ticket, now_s) is None
        assert pauses.ticket(ticket, now_s + TICKET_S) is None
        now_s += TICKET_S + 1.0
        assert pauses.ticket(ticket, now_s) == EndTicket(ticket)
        assert pauses.ticket("", now_s) is None


def test_pauses_grow_and_are_bounded() -> None:
    """1, 2, 4, 8, 16 s, then 30 s."""
    pauses = RetryPauses()

    assert [pauses.pause_s(n) for n in (1, 2, 3, 4, 5, 6, 9)] == [1, 2, 4, 8, 16, 30, 30]


def test_too_many_dropped_tasks_fail_the_job() -> None:
    """The reason has the last task's error; no more tasks are leased."""
    ledger = Ledger("digits", max_dropped_share=0.5)
    ledger.execute(Describe("train", shape(records=50)))
    join(ledger, "a")
    while not ledger.failed:
        lease = work(ledger, "a", 1)["tasks"][0]
        failure = {**ref(lease), "error": "no such file", "transient": False}
        work(ledger, "a", failed=[failure])
        end_pauses(ledger)

    assert ledger.state() == "failed"
    assert ledger.failed == (
        "3 of 5 tasks of train were dropped, the last of them train/0/2: no such file"
    )
    assert work(ledger, "a", 1)["state"] == "stop"
    assert join(ledger, "a")["state"] == "stop"


def test_the_status_says_what_cannot_be_read() -> None:
    """With the newest error, until a task is done."""
    ledger = opened("a")
    for lease in work(ledger, "a", 3)["tasks"]:
        error = "OSError: stale"
        work(ledger, "a", failed=[{**ref(lease), "error": error, "transient": True}])
    rendezvous = Rendezvous(0.0, settles=False).report()
    status = report(ledger, Liveness(1.0), ServiceCounters(), rendezvous, 0.0)

    assert status["datasets"]["train"]["outage"] == "OSError: stale"
