"""What a trainer holds, and what it tells of it."""

import dataclasses
import json

import pytest
from edl.book import Book, Portion
from edl.wire import Lease


def _lease(index: int = 0, attempt: int = 1, dataset: str = "train") -> Lease:
    start = 10 * index
    task = f"{dataset}/0/{index}"
    return Lease(task, attempt, "training", dataset, 0, start, start + 10, None, 60.0)


@pytest.fixture
def book() -> Book:
    """One that holds task 0."""
    found = Book()
    assert found.take(_lease())
    return found


def _train(book: Book, lease: Lease, size: int) -> bool:
    return book.trained([Portion(lease, size)], {})


def test_a_task_is_done_when_all_its_records_were_trained(book: Book) -> None:
    """Not before; and it is told until it is answered."""
    assert not _train(book, _lease(), 6)
    assert not book.report()
    assert _train(book, _lease(), 4)
    assert book.tells
    report = book.report()

    assert report.done == [{"task": "train/0/0", "attempt": 1, "records": 10, "steps": 2}]
    assert book.report().done == report.done
    assert book.answered(report, ["accepted"], call=3) == []
    assert book.empty
    assert book.counts.acknowledged == 10
    assert book.of("train").steps == 2
    assert book.unsafe() == report.done
    book.safe(2)
    assert book.unsafe() == report.done
    book.safe(3)
    assert book.unsafe() == []


def test_a_step_over_two_tasks_counts_for_the_first(book: Book) -> None:
    """Steps of all tasks sum up to the steps that were made."""
    book.take(_lease(1))
    book.trained([Portion(_lease(), 10), Portion(_lease(1), 10)], {"loss": 2.0})

    assert [entry["steps"] for entry in book.report().done] == [1, 0]
    assert [entry["metrics"] for entry in book.report().done] == [{"loss": 2.0}] * 2
    assert book.of("train").steps == 1


def test_what_is_trained_and_not_accepted_is_in_vain(book: Book) -> None:
    """Stale, or lost while a step was under way."""
    book.take(_lease(1))
    _train(book, _lease(), 10)
    _train(book, _lease(1), 5)
    assert book.answered(book.report(), ["stale"], call=1) == ["train/0/0"]
    assert book.lose(book.held(), ["train/0/1"]) == ["train/0/1"]
    _train(book, _lease(1), 5)

    assert (book.counts.trained, book.counts.acknowledged, book.counts.wasted) == (20, 0, 20)


def test_a_report_that_is_not_answered_stays(book: Book) -> None:
    """A short list of results is no answer to the rest."""
    _train(book, _lease(), 10)
    assert book.answered(book.report(), [], call=1) == []

    assert book.tells


def test_an_older_attempt_changes_nothing(book: Book) -> None:
    """The same lease twice is one; a newer attempt replaces it, and old answers miss it."""
    assert not book.take(_lease())
    _train(book, _lease(), 10)
    old, told = book.report(), book.held()
    assert book.take(_lease(attempt=2))
    assert book.answered(old, ["accepted"], call=1) == []
    assert book.lose(told, ["train/0/0"]) == []

    assert book.holds(_lease(attempt=2))
    assert not book.holds(_lease())
    assert book.counts.wasted == 10


def test_a_heartbeat_does_not_lose_what_is_done(book: Book) -> None:
    """Its own report was on the way: the answer to that decides."""
    _train(book, _lease(), 10)

    assert book.lose(book.held(), ["train/0/0"]) == []
    assert book.tells


def test_a_failed_task_is_told_once_and_no_more_worked_on(book: Book) -> None:
    """With its record, where one is to blame."""
    book.fail(_lease(), "ValueError: no", 7)
    book.fail(_lease(), "ValueError: again")
    book.fail(_lease(9), "ValueError: not held")
    report = book.report()
    assert report.failed == [
        {"task": "train/0/0", "attempt": 1, "error": "ValueError: no", "record": 7}
    ]
    assert not book.holds(_lease())
    book.answered(report, ["accepted"], call=1)

    assert book.empty
    assert (book.counts.failed, book.counts.acknowledged) == (1, 0)


def test_hands_back_what_is_not_done(book: Book) -> None:
    """Of one data set, or all; with how far it was."""
    book.take(_lease(1))
    book.take(_lease(2, dataset="test"))
    _train(book, _lease(), 10)
    _train(book, _lease(1), 3)

    assert book.unfinished("train") == [{"task": "train/0/1", "attempt": 1, "trained": 3}]
    assert len(book.clear("train")) == 2
    assert [one["task"] for one in book.clear()] == ["test/0/2"]
    assert book.clear() == []
    assert book.counts.wasted == 13


def test_what_was_acknowledged_is_told_by_a_successor_until_its_first_call_is_safe(
    book: Book,
) -> None:
    """Its own calls are counted from 1; those of the one before say nothing of them."""
    _train(book, _lease(), 10)
    report = book.report()
    book.answered(report, ["accepted"], call=40)
    successor = Book()
    successor.load(book.dump())

    assert successor.unsafe() == report.done
    successor.safe(0)
    assert successor.unsafe() == report.done
    successor.safe(1)
    assert successor.unsafe() == []


def test_a_book_travels_as_json_with_all_that_it_knows(book: Book) -> None:
    """Tasks in hand with their metrics, what has ended, and what is not safe yet."""
    for index in (1, 2, 3):
        book.take(_lease(index))
    book.trained([Portion(_lease(1), 10)], {})
    book.answered(book.report(), ["accepted"], call=1)
    book.trained([Portion(_lease(2), 10)], {"loss": 0.5})
    book.fail(_lease(3), "x" * 501)
    book.trained([Portion(_lease(), 4)], {"loss": 2.0})
    dumped = json.loads(json.dumps(book.dump()))
    other = Book()
    other.take(_lease(9))
    other.load(dumped)

    assert dumped["failures"] == ["train/0/3"]
    assert dumped["unsafe"] == [{"task": "train/0/1", "attempt": 1, "records": 10, "steps": 1}]
    assert dumped["held"][0] == {
        "lease": dataclasses.asdict(_lease()),
        "trained": 4,
        "steps": 1,
        "sums": {"loss": 8.0},
        "weights": {"loss": 4},
    }
    assert other.dump() == book.dump()
    assert other.known() == {f"train/0/{index}" for index in range(4)}
    failed = {"task": "train/0/3", "attempt": 1, "error": "x" * 500}
    done = {"task": "train/0/2", "attempt": 1, "records": 10, "steps": 1, "metrics": {"loss": 0.5}}
    assert (other.report().done, other.report().failed) == ([done], [failed])


def test_a_successor_tells_what_is_done_and_what_is_held(book: Book) -> None:
    """A task that failed is only held: the failure is told by a call. The answer books the rest."""
    for index in (1, 2, 3):
        book.take(_lease(index))
    _train(book, _lease(), 10)
    book.fail(_lease(1), "ValueError: no")
    _train(book, _lease(3), 2)

    done, held = book.inherit()
    book.inherited(["train/0/3"])

    assert done == [{"task": "train/0/0", "attempt": 1, "records": 10, "steps": 1}]
    assert held == [{"task": f"train/0/{index}", "attempt": 1} for index in (1, 2, 3)]
    assert book.unsafe() == done
    assert [one["task"] for one in book.held()] == ["train/0/1", "train/0/2"]
    assert (book.counts.trained, book.counts.wasted) == (12, 2)
    book.safe(1)
    assert book.unsafe() == []


def test_settled_tasks_are_forgotten_and_nothing_of_them_was_in_vain(book: Book) -> None:
    """Another member told the master of them."""
    book.take(_lease(1))
    _train(book, _lease(), 4)
    book.settle(["train/0/0", "train/0/7"])

    assert book.known() == {"train/0/1"}
    assert book.counts.wasted == 0


def test_answers_are_for_the_entries_in_their_order(book: Book) -> None:
    """Done first, then failed, then handed back; only what is done counts as acknowledged."""
    for index in (1, 2):
        book.take(_lease(index))
    _train(book, _lease(), 10)
    _train(book, _lease(1), 3)
    book.fail(_lease(1), "ValueError: no")
    report = book.report()
    report.back = book.unfinished("train")

    assert book.answered(report, ["accepted", "accepted", "stale"], call=1) == ["train/0/2"]
    assert book.empty
    assert (book.counts.acknowledged, book.counts.failed, book.counts.wasted) == (10, 1, 3)
    assert [entry["task"] for entry in book.unsafe()] == ["train/0/0"]
