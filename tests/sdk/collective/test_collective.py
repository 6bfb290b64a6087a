"""Collective operations of a ring: results are right, and the same bits in all members."""

from typing import Any

import numpy as np
import pytest
from edl.collective import Interrupt, Listener, Ring
from edl.errors import Mismatch, RoundOver

from tests.sdk.collective.rings import KEY, LOCAL, Take


def _numbers(rank: int, size: int, kind: Any) -> Any:
    return np.random.default_rng([rank, size]).standard_normal(size).astype(kind)


@pytest.mark.parametrize("world_size", range(1, 9))
def test_sums_are_right_and_the_same_bit_by_bit(take: Take, world_size: int) -> None:
    """For any number of members, and sizes from nothing to many chunks, one call after another."""
    cases = [
        (size, kind)
        for size in (0, 1, world_size - 1, world_size, world_size + 1, 127, 8191, 65_536, 300_007)
        for kind in (np.float32, np.float64)
    ]

    def act(ring: Ring) -> list[Any]:
        buffers = [_numbers(ring.rank, size, kind) for size, kind in cases]
        for buffer in buffers:
            ring.all_reduce(buffer)
        return buffers

    sums = take(world_size).run(act)

    for index, (size, kind) in enumerate(cases):
        exact = sum(_numbers(rank, size, kind).astype(np.float64) for rank in range(world_size))
        assert {member[index].tobytes() for member in sums} == {sums[0][index].tobytes()}
        np.testing.assert_allclose(sums[0][index], exact, rtol=1e-4, atol=1e-5)


def test_a_matrix_is_summed_where_it_lies(take: Take) -> None:
    """Any contiguous shape will do."""

    def act(ring: Ring) -> Any:
        buffer = np.full((3, 5), ring.rank + 1, np.float32)
        ring.all_reduce(buffer)
        return buffer

    for buffer in take(3).run(act):
        assert (buffer == np.full((3, 5), 6)).all()


@pytest.mark.parametrize(
    "buffer",
    [
        np.zeros(4, np.int64),
        np.zeros(4, ">f4"),
        np.zeros((4, 4), np.float32).T[:2],
        np.broadcast_to(np.float32(1), (3,)),
        [1.0, 2.0],
    ],
    ids=["integers", "byte order", "strides", "read-only", "list"],
)
def test_a_buffer_that_cannot_be_summed_is_refused(take: Take, buffer: Any) -> None:
    """Before anything is sent: the ring is as good as before."""

    def act(ring: Ring) -> int:
        with pytest.raises(TypeError, match="all_reduce"):
            ring.all_reduce(buffer)
        return len(ring.gather(b""))

    assert take(2).run(act) == [2, 2]


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_payloads_come_in_order_of_rank(take: Take, world_size: int) -> None:
    """They may be of any length up to a MiB."""
    lengths = [0, 3, 1 << 20, 17, 70_000]
    payloads = [bytes([rank]) * lengths[rank] for rank in range(world_size)]
    gathered = take(world_size).run(lambda ring: ring.gather(payloads[ring.rank]))

    assert gathered == [payloads] * world_size


def test_a_payload_that_is_too_long_is_refused(take: Take) -> None:
    """The error has both figures."""
    (error,) = take(1).run(lambda ring: ring.gather(bytes((1 << 20) + 1)))

    assert isinstance(error, ValueError)
    assert "1048577 bytes is too long to gather: the limit is 1048576" in str(error)


ARRAYS: list[Any] = [
    np.arange(200_000, dtype=np.float64).reshape(4, -1),
    np.zeros((0, 3), np.int32),
    np.array(7, np.uint16),
    np.arange(12, dtype=np.float16).reshape(3, 4).T,
    np.array([True, False]),
    np.array(["2026-11-21"], "datetime64[D]"),
    np.array(["ä", "digits"]),
]


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_a_broadcast_brings_arrays_and_bytes_as_they_are(take: Take, world_size: int) -> None:
    """From any source; types, shapes and bits are kept."""

    def act(ring: Ring) -> list[Any]:
        return [
            ring.broadcast(ARRAYS if ring.rank == source else None, bytes([source]) * 5, source)
            for source in range(ring.world_size)
        ]

    for member in take(world_size).run(act):
        for source, (meta, arrays) in enumerate(member):
            assert meta == bytes([source]) * 5
            for sent, received in zip(ARRAYS, arrays, strict=True):
                assert (sent.dtype, sent.shape) == (received.dtype, received.shape)
                assert sent.tobytes() == received.tobytes()


def test_what_cannot_be_broadcast_is_refused(take: Take) -> None:
    """Arrays of objects, no arrays at all, and a source that is not a member."""
    ring = take(1).connect(0)
    for arrays, source, text in (
        ([np.zeros(3), np.array([object()])], 0, "array 1 is of object"),
        (None, 0, r"must pass arrays, or \[\]"),
        ([], 1, "source 1 is not one of 1 members"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            ring.broadcast(arrays, b"", source)


def test_sizes_that_differ_are_named_on_all_members(take: Take) -> None:
    """No member hangs, and none continues with a wrong sum."""
    sizes = [5, 5, 6, 5]

    def act(ring: Ring) -> None:
        ring.barrier()  # all have formed it
        ring.all_reduce(np.zeros(sizes[ring.rank], np.float32))

    errors = take(4).run(act)

    for error in errors:
        assert isinstance(error, Mismatch)
        assert "all_reduce of 5 x <f4" in str(error)
        assert "all_reduce of 6 x <f4" in str(error)
        assert "rank 2 (127.0.0.1:" in str(error)


def test_members_that_are_out_of_step_name_both_operations(take: Take) -> None:
    """Another operation, or the same one later."""

    def act(ring: Ring) -> None:
        ring.barrier()  # all have formed it
        if ring.rank < 2:
            ring.barrier()
        else:
            ring.gather(b"")

    errors = take(3).run(act)

    for error in errors:
        assert isinstance(error, Mismatch)
        assert "barrier as operation 2" in str(error)
        assert "gather as operation 2" in str(error)


def test_a_ring_of_one_does_all_at_once() -> None:
    """It needs no other member, but an interrupt ends it too."""
    listener, interrupt = Listener(LOCAL), Interrupt()
    ring = Ring.connect(listener, ["a:1"], 0, number=1, key=KEY, interrupt=interrupt)
    ring.all_reduce(np.ones(3, np.float32))
    interrupt.set()
    with pytest.raises(RoundOver, match="interrupted"):
        ring.barrier()
    interrupt.clear()

    assert ring.gather(b"me") == [b"me"]
    listener.close()
    interrupt.close()
