"""The sampler of a `DataLoader`, without torch."""

import pytest
from edl import DataError, Dataset
from edl.data.batches import describe
from edl.master.protocol import Lease
from edl.sources.leased_records import LeasedRecords
from edl.sources.record_order import RecordOrder
from edl.sync.plans import Plan, Span, split
from edl.torch.sampler import IndexReader, IndexSource, LeasedSampler

RECORDS, SEED = 100, 3


def reader(sampler: LeasedSampler, seed: int | None = SEED) -> IndexReader:
    """A reader of a hundred records."""
    dataset = Dataset("train", IndexSource(RECORDS))
    description = describe(dataset, 8, epochs=1, shuffle_seed=seed, task_records=16)
    return IndexReader(LeasedRecords(dataset.source, description), sampler)


def plan(start: int, count: int, epoch: int = 0) -> Plan:
    """A step on records of one task."""
    lease = Lease(f"train/{epoch}/0", 1, "training", "train", epoch, 0, RECORDS, None, 60.0)
    return Plan(f"plan-{start}", (Span(lease, start, count),))


def test_indices_are_those_of_the_leased_records() -> None:
    """Without a seed in their order, in micro-batches."""
    sampler = LeasedSampler()
    step = plan(10, 8)
    reader(sampler, None).request(step, list(enumerate(split(step.spans, 3))))
    assert list(sampler) == [[10, 11, 12], [13, 14, 15], [16, 17]]


def test_a_seed_permutes_records() -> None:
    """By the order that all trainers compute, another one in each epoch."""
    for epoch in (0, 1):
        sampler = LeasedSampler()
        step = plan(10, 6, epoch)
        reader(sampler).request(step, [(0, step.spans)])
        expected = [int(number) for number in RecordOrder(RECORDS, SEED, epoch).numbers(10, 16)]
        assert list(sampler) == [expected]


def test_it_goes_on_after_it_had_none() -> None:
    """A `DataLoader` asks again: it must not end at the first time."""
    sampler = LeasedSampler()
    assert list(sampler) == []
    sampler.extend([[1], [2]])
    assert len(sampler) == 2
    assert list(iter(sampler)) == [[1], [2]]


def test_assignments_are_kept_until_their_step() -> None:
    """Each is taken once; those of a reader that was closed are gone, and so are their indices."""
    sampler = LeasedSampler()
    indices = reader(sampler, None)
    first, second = plan(0, 4), plan(4, 4)
    for step in (first, second):
        indices.request(step, [(0, step.spans)])
    assert indices.take(first) == [(0, first.spans)]
    with pytest.raises(KeyError):
        indices.take(first)
    indices.close(0.0)
    assert len(sampler) == 0
    with pytest.raises(KeyError):
        indices.take(second)


@pytest.mark.parametrize("count", [0, -1, 2.5, True, None])
def test_counts_that_are_none_are_refused(count: object) -> None:
    """In a line that says what is meant."""
    with pytest.raises(DataError, match=r"len\(train_set\)"):
        IndexSource(count)
