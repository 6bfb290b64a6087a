"""State that goes only to the members that lack it."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from edl.collective import Ring
from edl.errors import Mismatch, RoundOver

from tests.sdk.collective.rings import Take


@pytest.mark.parametrize(
    ("world_size", "receivers"),
    [(2, {1}), (2, {0}), (5, {3, 4}), (5, {0, 4}), (5, {1, 3}), (6, {1, 2, 4}), (3, set())],
)
def test_receivers_and_only_they_get_the_arrays(
    take: Take, world_size: int, receivers: set[int]
) -> None:
    """Wherever they sit; the ring works on."""
    state: list[Any] = [np.arange(300_000, dtype=np.float32), np.array([], np.int64), np.array(7.0)]

    def act(ring: Ring) -> Any:
        brings = None if ring.rank in receivers else state
        received = ring.hand_over(brings, b"about", frozenset(receivers))
        ring.barrier()
        return received, ring.gather(str(ring.rank).encode())

    for rank, ((meta, arrays), ranks) in enumerate(take(world_size).run(act)):
        assert ranks == [str(other).encode() for other in range(world_size)]
        if rank not in receivers:
            assert (meta, arrays) == (b"", [])
            continue
        assert meta == b"about"
        assert [(a.dtype, a.shape, a.tobytes()) for a in arrays] == [
            (a.dtype, a.shape, a.tobytes()) for a in state
        ]


def test_members_that_need_nothing_hold_no_copy(take: Take) -> None:
    """Of 8 MB, which go past them."""
    state = np.zeros(1_000_000)

    def act(ring: Ring) -> None:
        ring.hand_over(None if ring.rank == 4 else [state], b"", frozenset({4}))
        ring.barrier()

    seats = take(5)
    tracemalloc.start()
    seats.run(act)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak_bytes < 1.5 * state.nbytes  # one copy, of the receiver


def test_what_cannot_be_handed_over_is_refused_by_its_reason(take: Take) -> None:
    """Nobody has it, or the one before the receiver does not bring it."""

    def all_lack(ring: Ring) -> str:
        with pytest.raises(ValueError, match="all members lack it") as caught:
            ring.hand_over([], b"", frozenset({0, 1}))
        return str(caught.value)

    def brings_none(ring: Ring) -> None:
        if ring.rank == 0:
            with pytest.raises(ValueError, match="must pass arrays"):
                ring.hand_over(None, b"", frozenset({1}))

    take(2).run(all_lack)
    take(2).run(brings_none)


def test_a_closed_neighbour_is_noticed_without_a_call(take: Take) -> None:
    """So that a gradient is not overwritten that another member may need."""

    def act(ring: Ring) -> bool:
        ring.check()
        ring.barrier()
        if ring.rank == 1:
            ring.close()
            return True
        try:
            while True:
                ring.check()
        except (RoundOver, Mismatch):
            return True

    assert all(take(2).run(act))
