"""Micro-batches do not depend on the members; only their assignment to members does."""

from edl.sync.plans import Span, assigned_indices, micro_size, split
from hypothesis import given
from hypothesis import strategies as st

from tests.sdk.sync.leases import lease, plan

SPANS = st.lists(st.integers(1, 40), min_size=1, max_size=6).map(
    lambda sizes: tuple(Span(lease(i, 40), i * 40, size) for i, size in enumerate(sizes))
)


@given(count=st.integers(0, 200), world_size=st.integers(1, 64))
def test_every_micro_batch_has_exactly_one_member(count: int, world_size: int) -> None:
    """Adjacent ones, in order of rank; the members' numbers differ by at most one."""
    shares = [assigned_indices(count, rank, world_size) for rank in range(world_size)]

    assert [index for share in shares for index in share] == list(range(count))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(spans=SPANS, size=st.integers(1, 50))
def test_a_cut_keeps_all_records_in_order(spans: tuple[Span, ...], size: int) -> None:
    """All micro-batches but the last one have the requested size."""
    micros = split(spans, size)

    def records(spans: tuple[Span, ...]) -> list[int]:
        return [at for span in spans for at in range(span.start, span.start + span.count)]

    assert [at for micro in micros for at in records(micro)] == records(spans)
    sizes = [len(records(micro)) for micro in micros]
    assert set(sizes[:-1]) <= {size}
    assert 0 < sizes[-1] <= size


def test_nothing_is_cut_into_nothing() -> None:
    """A plan without records has no micro-batch."""
    assert split((), 8) == []


@given(batch=st.integers(1, 500), micros=st.integers(1, 500))
def test_a_batch_never_has_more_micro_batches_than_asked_for(batch: int, micros: int) -> None:
    """Rounded up, so that each has a record at least."""
    size = micro_size(batch, micros)

    assert size >= 1
    assert -(-batch // size) <= micros


def test_a_plan_knows_its_size_and_its_spans_their_portions() -> None:
    """As the lease table counts them."""
    two_tasks = plan("a", (lease(0), 3, 7), (lease(1), 10, 2))

    assert two_tasks.size == 9
    assert [(span.portion.lease.task, span.portion.size) for span in two_tasks.spans] == [
        ("points/0/0", 7),
        ("points/0/1", 2),
    ]
