"""What is an outage of storage and what is not, how it ends, and how little of it is remembered."""

import json

import pytest

from master.commands import Describe, EndOutage, Leave
from master.failures import max_dropped
from master.ledger import Ledger
from master.retry_pauses import OUTAGE_S, RetryPauses
from tests.master.ledger_calls import done, end_pauses, join, opened, ref, shape, work
from tests.master.test_failed_tasks import STALE, Job

ERRORS = ("OSError: stale", "TimeoutError: read", "ConnectionResetError: by peer")


def _failing_job(records: int = 400) -> Ledger:
    """A ledger whose four trainers have each just failed to read a task."""
    ledger = opened(*"abcd", records=records)
    done(ledger, "a", work(ledger, "a", 1)["tasks"])
    for name in "abcd":
        lease = work(ledger, name, 1)["tasks"][0]
        work(ledger, name, failed=[{**ref(lease), "error": STALE, "transient": True}])
    return ledger


def _let_pass(ledger: Ledger, seconds: int, names: str) -> None:
    """Lets time pass; trainers lease what is free and never finish it."""
    pauses = RetryPauses()
    for now_s in range(seconds):
        retry = pauses.retry(ledger, float(now_s))
        outage = pauses.outage(ledger, OUTAGE_S, float(now_s))
        for command in (retry, outage):
            if command is not None:
                ledger.execute(command)
        for name in names:
            trainer = ledger.trainers.find(name)
            if trainer is not None and not trainer.leases:
                work(ledger, name, 1)


def test_all_errors_of_a_storage_are_one_outage() -> None:
    """Its clients see time-outs and refused connections in turn; each began another wave before."""
    ledger = opened(*"abc", records=400)
    for name, error in zip("abc", ERRORS, strict=True):
        lease = work(ledger, name, 1)["tasks"][0]
        work(ledger, name, failed=[{**ref(lease), "error": error, "transient": True}])

    assert ledger.datasets["train"].outage


def test_tasks_that_take_long_to_train_are_no_outage() -> None:
    """They could be read again after a second: that none is done for an hour fails no job."""
    ledger = _failing_job()

    _let_pass(ledger, 3_600, "abcd")

    assert ledger.state() == "working"


def test_a_job_without_trainers_is_no_outage() -> None:
    """Nobody reads after all were evicted: whoever comes an hour later finds the job working."""
    ledger = _failing_job()
    for name in "abcd":
        ledger.execute(Leave(name, f"{name}-1"))

    _let_pass(ledger, 3_600, "")
    join(ledger, "e")

    assert ledger.state() == "working"
    assert work(ledger, "e", 1)["tasks"]


def test_an_outage_lasts_to_its_newest_failure_however_often_it_is_looked_at() -> None:
    """Two failures a second apart are an outage of a second, whatever comes later."""
    ledger, pauses = _failing_job(), RetryPauses()
    assert pauses.outage(ledger, OUTAGE_S, 0.0) is None
    lease = work(ledger, "a", 1)["tasks"][0]
    work(ledger, "a", failed=[{**ref(lease), "error": STALE, "transient": True}])

    looks = [pauses.outage(ledger, OUTAGE_S, float(now_s)) for now_s in range(1, 900)]

    assert looks == [None] * 899


def test_an_outage_begins_anew_after_a_long_quiet() -> None:
    """A failure an hour after the others is not the end of an outage of an hour."""
    ledger, pauses = _failing_job(), RetryPauses()
    assert pauses.outage(ledger, OUTAGE_S, 0.0) is None
    lease = work(ledger, "a", 1)["tasks"][0]
    work(ledger, "a", failed=[{**ref(lease), "error": STALE, "transient": True}])

    assert pauses.outage(ledger, OUTAGE_S, 3_600.0) is None


@pytest.mark.parametrize(("bad", "state"), [(5, "done"), (12, "failed")])
def test_a_few_bad_sectors_at_the_end_are_dropped(bad: int, state: str) -> None:
    """They fail like a storage that is away, for ever; of 1 000 tasks, ten may be dropped."""
    starts = {1_000 + 20 * number for number in range(bad)}
    job = Job(
        4,
        lambda lease, _: "OSError: [Errno 5] I/O error" if lease["start"] in starts else "",
        transient=True,
        step_s=0.5,
        records=10_000,
    )

    assert job.run() == state
    assert job.progress["dropped_tasks"] == (bad if state == "done" else 0)


def test_an_outage_that_leaves_nothing_done_fails_the_job() -> None:
    """No share of dropped tasks makes a job of which nothing was trained `done`."""
    ledger = Ledger("digits", max_dropped_share=1.0)
    ledger.execute(Describe("train", shape()))
    join(ledger, "a")
    for lease in work(ledger, "a", 4)["tasks"]:
        work(ledger, "a", failed=[{**ref(lease), "error": STALE, "transient": True}])

    ledger.execute(EndOutage("train", 700))

    assert ledger.state() == "failed"
    assert "no task of train was done" in ledger.failed


def test_a_trainer_that_reads_nothing_leaves_little_to_remember() -> None:
    """It fails tasks faster than others train them: they train the failed ones before new ones."""
    job = Job(3, lambda *_: "", records=10_000_000)
    job.step()
    for _ in range(1_000):
        job.step()
        for lease in work(job.ledger, "trainer-0", 8)["tasks"]:
            report = {**ref(lease), "error": "FileNotFoundError: /data", "transient": False}
            work(job.ledger, "trainer-0", failed=[report])

    assert job.progress["failing_tasks"] < 1_100
    assert len(json.dumps(job.ledger.dump())) < 100_000
    assert job.ledger.state() == "working"
    assert job.progress["done_tasks"] > 1_500


def test_never_more_tasks_are_dropped_than_a_snapshot_can_list() -> None:
    """One percent of a billion tasks would be more than ten million numbers."""
    assert max_dropped(1_000_000_000, 0, 0.01) == 16_384
    assert max_dropped(1_000, 0, 0.01) == 10
    assert max_dropped(10, 0, 0.01) == 1
    assert max_dropped(10, 0, 0.0) == 0


def test_a_stream_counts_its_dropped_tasks_without_a_list() -> None:
    """It may run for years; 16 tasks, or the share of those that were done, may be dropped."""
    ledger = Ledger("digits")
    ledger.execute(Describe("train", {**shape(), "records": None}))
    join(ledger, "a")
    dataset = ledger.datasets["train"]
    for lease in work(ledger, "a", 17)["tasks"]:
        assert not dataset.hopeless(0.01)
        epoch = dataset.open[0]
        dataset.drop(epoch, next(iter(epoch.outstanding)))
        assert lease["dataset"] == "train"

    assert not dataset.dropped
    assert dataset.hopeless(0.01) == "17 tasks of train were dropped"


def test_a_journal_of_an_earlier_version_keeps_its_rule_for_dropped_tasks() -> None:
    """Then a task had three failures in each epoch, and the 17th dropped task failed the job."""
    ledger = opened("a", records=180, epochs=2)

    def fail_tasks(count: int, failures: int) -> None:
        for _ in range(count * failures):
            lease = work(ledger, "a", 1)["tasks"][0]
            work(ledger, "a", failed=[{**ref(lease), "error": "ValueError: torn"}])

    fail_tasks(15, 3)
    done(ledger, "a", work(ledger, "a", 3)["tasks"])
    assert ledger.state() == "working"
    fail_tasks(1, 2)
    assert ledger.datasets["train"].progress()["dropped_tasks"] == 15
    fail_tasks(1, 1)
    assert ledger.state() == "working"
    fail_tasks(1, 3)
    assert ledger.failed.startswith("17 tasks were dropped")


def test_a_snapshot_with_failing_tasks_can_be_read_by_an_earlier_version() -> None:
    """It knows tasks of four fields, and leases those that are returned; a cluster may be set back."""
    ledger = _failing_job()
    end_pauses(ledger)
    lease = work(ledger, "a", 1)["tasks"][0]
    work(ledger, "a", failed=[{**ref(lease), "error": STALE, "transient": True}])
    state = json.loads(json.dumps(ledger.dump()))
    epoch = state["datasets"]["train"]["open"][0]

    assert all(len(fields) == 4 for fields in epoch["outstanding"])
    assert sorted(epoch["returned"]) == [1, 2, 3, 4, 5]
    again = Ledger("digits")
    again.load(state)
    assert again.dump() == ledger.dump()
    assert list(again.failing()) == list(ledger.failing())
