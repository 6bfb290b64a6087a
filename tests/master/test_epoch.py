"""The tasks of one epoch, and which epochs of a data set are open."""

import pytest

from master.dataset import Dataset, Evaluation
from master.epoch import Epoch
from master.partitioning import TaskOrder
from tests.master.ledger_calls import shape


def _epoch(count: int) -> Epoch:
    return Epoch(0, count, TaskOrder(count, None, 0))


def test_what_came_back_goes_out_first_and_in_the_epochs_order() -> None:
    """Its attempt is greater than all earlier ones, also those of another master."""
    epoch = _epoch(4)
    for _ in range(3):
        epoch.lease("a", 0)
    for index in (2, 0):
        epoch.give_back(index)

    assert epoch.lease("b", 0) == (0, 2)
    assert epoch.lease("b", 100) == (2, 101)
    assert epoch.lease("b", 0) == (3, 1)
    assert not epoch.is_free("a")


@pytest.mark.parametrize("seed", [None, 7])
def test_leaders_that_are_lost_one_after_the_other_change_no_order(seed: int | None) -> None:
    """The second one leased a part of what the first returned, and returns that again."""
    epoch = Epoch(0, 64, TaskOrder(64, seed, 3))
    expected = [epoch.order.number_at(place) for place in range(64)]
    first = [epoch.lease("a", 0)[0] for _ in range(20)]
    for index in first[4:]:
        epoch.give_back(index)
    second = [epoch.lease("b", 0)[0] for _ in range(6)]
    for index in second[2:]:
        epoch.give_back(index)
    epoch = Epoch.load(epoch.dump(), 64, TaskOrder(64, seed, 3))

    assert second == first[4:10]
    assert [epoch.lease("c", 0)[0] for _ in range(58)] == expected[6:]


def test_counts_follow_each_task() -> None:
    """Leased, done and dropped; complete when no task is outstanding."""
    epoch = _epoch(3)
    for _ in range(3):
        epoch.lease("a", 0)
    assert (epoch.exhausted, epoch.is_free("a"), epoch.leased, epoch.done) == (True, False, 3, 0)
    epoch.give_back(2)
    assert (epoch.is_free("a"), epoch.leased, epoch.done) == (True, 2, 0)
    epoch.finish(0)
    epoch.finish(1, dropped=True)
    assert (epoch.leased, epoch.done, epoch.dropped, epoch.complete) == (0, 1, 1, False)
    epoch.finish(2)

    assert (epoch.done, epoch.is_free("a"), epoch.complete) == (2, False, True)


def test_a_task_that_another_master_gave_out_is_not_given_out_again() -> None:
    """The cursor has not reached it yet, and skips it."""
    epoch = _epoch(3)
    epoch.adopt(1, 9, "b")
    assert [epoch.was_leased(index) for index in range(3)] == [False, True, False]
    leases = [epoch.lease("a", 0) for _ in range(2)]

    assert leases == [(0, 1), (2, 1)]
    assert (epoch.exhausted, epoch.leased) == (True, 3)
    assert (epoch.outstanding[1].attempt, epoch.outstanding[1].holder) == (9, "b")


def test_a_task_that_came_back_may_be_adopted() -> None:
    """It is not leased to others then."""
    epoch = _epoch(1)
    epoch.lease("a", 0)
    epoch.give_back(0)
    epoch.adopt(0, 7, "b")

    assert (epoch.is_free("a"), epoch.leased) == (False, 1)
    assert epoch.outstanding[0].attempt == 7


def test_only_tasks_of_the_epoch_exist() -> None:
    """A stream has every task."""
    stream = Epoch(0, None, TaskOrder(1, None, 0))

    assert [_epoch(2).exists(index) for index in (-1, 0, 1, 2)] == [False, True, True, False]
    assert [stream.exists(index) for index in (-1, 0, 10**9)] == [False, True, True]


def test_at_most_eight_epochs_overlap() -> None:
    """A trainer that holds a task of the first for long must not fill the ledger."""
    data = Dataset("train", shape(records=10, epochs=20, overlap=True))
    while data.is_free("a"):
        data.lease("a", 0, 1)

    assert list(data.open) == list(range(8))
    assert data.progress()["epoch"] == 0


@pytest.mark.parametrize(("kind", "most"), [("training", 256), ("evaluation", 8)])
def test_an_epoch_far_beyond_those_that_are_open_is_not_begun(kind: str, most: int) -> None:
    """No previous master can have begun it: a trainer's report must not fill the ledger."""
    dataset = Dataset("x", shape(records=10, epochs=1_000, kind=kind))

    assert dataset.ensure_open(most) is None
    assert list(dataset.open) == [0]
    for number in (most - 1, most, most + 99):
        dataset.ensure_open(number)
    assert list(dataset.open) == list(range(most))


def _evaluated(dataset: Dataset, tasks: int, metrics: int) -> None:
    """Completes tasks of which each has different metrics."""
    for _ in range(tasks):
        (lease,) = dataset.lease("a", 0, 1)
        epoch = dataset.open[lease["epoch"]]
        index = int(lease["task"].split("/")[2])
        first = lease["epoch"] * 1_000 + index * metrics
        dataset.accept(epoch, index, {f"{first + place}": 1.0 for place in range(metrics)})


def test_an_evaluation_has_so_many_metrics_and_no_more() -> None:
    """It keeps the first ones that its tasks report."""
    dataset = Dataset("x", shape(records=30, epochs=1, kind="evaluation"))
    _evaluated(dataset, 3, 500)

    assert list(dataset.evaluations[0].sums) == [f"{name}" for name in range(640)]


def test_the_oldest_evaluations_are_forgotten() -> None:
    """They are where there are too many metrics together; also in a restored ledger."""
    dataset = Dataset("x", shape(records=10, epochs=0, kind="evaluation"))
    for version in range(200):
        dataset.add_evaluation(version)
        _evaluated(dataset, 1, 64)
        dataset = Dataset.load("x", dataset.dump())

    assert [evaluation.model_version for evaluation in dataset.evaluations] == list(range(75, 200))
    assert all(
        evaluation.complete and len(evaluation.sums) == 64 for evaluation in dataset.evaluations
    )
    assert dataset.progress()["epochs"] == dataset.opened == 200


def test_evaluations_that_are_still_to_do_are_kept() -> None:
    """Of complete ones, as many are kept as make 1 024 together."""
    dataset = Dataset("x", shape(records=10, epochs=0, kind="evaluation"))
    for version in range(1_000):
        dataset.add_evaluation(version)
    _evaluated(dataset, 500, 1)
    assert not dataset.evaluations_full
    for version in range(1_000, 1_524):
        dataset.add_evaluation(version)

    assert [evaluation.model_version for evaluation in dataset.evaluations] == list(
        range(500, 1_524)
    )
    assert dataset.evaluations_full
    assert dataset.lease("a", 0, 1)[0]["model_version"] == 500


def test_means_are_weighted_by_records() -> None:
    """A mean that is not finite makes the total null, whatever follows; others do not change."""
    evaluation = Evaluation(3)
    evaluation.add({"loss": 1.0, "accuracy": 0.5}, 10)
    evaluation.add({"loss": 4.0}, 20)
    assert evaluation.to_json()["metrics"] == {"loss": 3.0, "accuracy": 0.5}
    evaluation.add({"loss": None}, 1)
    evaluation.add({"loss": 1.0}, 1)

    assert evaluation.to_json()["metrics"] == {"loss": None, "accuracy": 0.5}
    assert (evaluation.records, evaluation.model_version, evaluation.complete) == (32, 3, False)
