"""Micro-batches do not depend on the members; only who computes which one does."""

from edl.sync.shares import Span, cut, micro_size, share
from hypothesis import given
from hypothesis import strategies as st

from tests.sdk.sync.leases import lease, plan

SPANS = st.lists(st.integers(1, 40), min_size=1, max_size=6).map(
    lambda sizes: tuple(Span(lease(i, 40), i * 40, size) for i, size in enumerate(sizes))
)


@given(count=st.integers(0, 200), world=st.integers(1, 64))
def test_every_micro_batch_has_exactly_one_member(count: int, world: int) -> None:
    """Neighbours, in order of rank, and nobody has two more than another."""
    shares = [share(count, rank, world) for rank in range(world)]

    assert [index for one in shares for index in one] == list(range(count))
    sizes = [len(one) for one in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(spans=SPANS, size=st.integers(1, 50))
def test_a_cut_keeps_all_records_in_order(spans: tuple[Span, ...], size: int) -> None:
    """All micro-batches but the last one are of the size asked for."""
    micros = cut(spans, size)

    def records(found: tuple[Span, ...]) -> list[int]:
        return [at for span in found for at in range(span.start, span.start + span.count)]

    assert [at for micro in micros for at in records(micro)] == records(spans)
    sizes = [len(records(micro)) for micro in micros]
    assert set(sizes[:-1]) <= {size}
    assert 0 < sizes[-1] <= size


def test_nothing_is_cut_into_nothing() -> None:
    """A plan without records has no micro-batch."""
    assert cut((), 8) == []


@given(batch=st.integers(1, 500), micros=st.integers(1, 500))
def test_a_batch_never_has_more_micro_batches_than_asked_for(batch: int, micros: int) -> None:
    """Rounded up, so that each has a record at least."""
    size = micro_size(batch, micros)

    assert size >= 1
    assert -(-batch // size) <= micros


def test_a_plan_knows_its_size_and_its_spans_their_portions() -> None:
    """As the book counts them."""
    one = plan("a", (lease(0), 3, 7), (lease(1), 10, 2))

    assert one.size == 9
    assert [(each.portion.lease.task, each.portion.size) for each in one.spans] == [
        ("points/0/0", 7),
        ("points/0/1", 2),
    ]
