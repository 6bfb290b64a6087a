"""Ends of a round: every member's call ends soon after, and names the cause."""

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edl import clock
from edl.collective import Ring, close_message
from edl.collective.close_message import CloseCode, CloseMessage
from edl.errors import RoundOver

from tests.sdk.collective.rings import Seats, results
from tests.sdk.support.loops import LIMIT_S, until

LARGE = 3_000_000


@pytest.fixture
def four() -> Iterator[Seats]:
    """Seats for four members."""
    seats = Seats(4)
    yield seats
    seats.close()


def _sum(ring: Ring, size: int = LARGE) -> None:
    ring.all_reduce(np.ones(size, np.float32))


def _wait_for(event: threading.Event, _: Ring) -> None:
    event.wait(2 * LIMIT_S)


def _barriers(ring: Ring) -> None:
    while True:
        ring.barrier()


def test_an_interrupt_from_another_thread_ends_all_at_once(four: Seats) -> None:
    """One member, for which all others wait, never calls the operation."""
    release = threading.Event()
    members = four.start(_sum, _sum, _sum, partial(_wait_for, release))
    until(lambda: four.waits[1] and four.waits[2])
    four.interrupts[1].set()
    errors = results(members[:3])
    assert not members[3].done()
    release.set()
    results(members)

    assert str(errors[1]) == "the collective call was interrupted by news of another round"
    for rank in (0, 2):
        assert isinstance(errors[rank], RoundOver)
        assert f"rank 1 ({four.addresses[1]})" in str(errors[rank])


def test_long_waits_are_reported(four: Seats) -> None:
    """`on_wait` gets the start of the wait on the caller's clock, and None at its end."""
    begun_s = clock.monotonic_s()

    def late(ring: Ring) -> None:
        until(lambda: all(four.waits[:3]))
        ring.barrier()

    results(four.start(Ring.barrier, Ring.barrier, Ring.barrier, late))

    for waits in four.waits[:3]:
        since, *later = waits
        assert since is not None
        assert begun_s <= since <= clock.monotonic_s() - 0.25
        assert later[-1] is None


def test_a_member_that_leaves_ends_the_others_next_operation(four: Seats) -> None:
    """It is reported as having left; the operation that all were in is completed."""
    errors = four.run(_barriers, _barriers, _barriers, Ring.barrier)

    assert all(isinstance(error, RoundOver) for error in errors[:3])
    assert str(errors[2]) == f"rank 3 ({four.addresses[3]}) has left the round"
    assert errors[3] is None


def test_leaving_after_the_last_operation_harms_no_member(four: Seats) -> None:
    """Members complete it at different moments, and close at once."""
    for number in range(1, 30):
        assert four.run(Ring.barrier, number=number) == [None] * 4


def test_a_failure_within_an_operation_is_reported_to_all(four: Seats) -> None:
    """Such as out of memory, or a signal handler that raises."""

    def fails(ring: Ring) -> None:
        def raises(since: "float | None") -> None:
            if since is not None:
                raise MemoryError("no room for the sum")

        ring.on_wait = raises
        assert ring.on_wait is raises
        _sum(ring)

    release = threading.Event()
    members = four.start(fails, partial(_wait_for, release), _sum, _sum)
    errors = results([members[0], *members[2:]])
    release.set()

    assert isinstance(errors[0], MemoryError)
    for error in errors[1:]:
        assert isinstance(error, RoundOver)
        assert f"rank 0 ({four.addresses[0]}): it stopped during an operation" in str(error)
        assert "MemoryError: no room for the sum" in str(error)


def test_a_ring_that_is_over_stays_over(four: Seats) -> None:
    """Each later call raises the same error; closing the ring twice is harmless."""

    def act(ring: Ring) -> list[str]:
        ring.barrier()
        texts = []
        for _ in range(2):
            with pytest.raises(RoundOver) as caught:
                _sum(ring, 1 + (ring.rank == 2))
            texts.append(str(caught.value))
        ring.close()
        ring.close()
        return texts

    for first, second in four.run(act):
        assert first == second
    ring = Seats(1)
    with ring.connect(0) as closed:
        pass
    with pytest.raises(RoundOver, match="this ring was closed"):
        closed.barrier()
    ring.close()


def _ends(link: socket.socket) -> None:
    link.shutdown(socket.SHUT_RDWR)


def _resets(link: socket.socket) -> None:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


@pytest.mark.parametrize("breaks", [_ends, _resets])
def test_a_peer_that_breaks_off_is_named(
    four: Seats, breaks: Callable[[socket.socket], None]
) -> None:
    """Like a process that dies: no close message is sent; all others report which one it was."""

    def dies(ring: Ring) -> None:
        ring.barrier()
        links: Any = ring._links  # noqa: SLF001 - the kernel does this to a process that is killed
        for link in (links._forward, links._backward):  # noqa: SLF001 - as above
            breaks(link)

    def goes_on(ring: Ring) -> None:
        ring.barrier()  # before that a ring that forms knows less
        _sum(ring, 100_000)

    errors = four.run(goes_on, goes_on, goes_on, dies)

    for error in errors[:3]:
        assert isinstance(error, RoundOver)
        assert f"rank 3 ({four.addresses[3]})" in str(error)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_three_hundred_rounds_leave_nothing_behind() -> None:
    """Descriptors and threads are as many as before; memory is flat from the hundredth on."""
    seats = Seats(3)
    buffers = [np.ones(50_000, np.float32) for _ in range(3)]

    def act(ring: Ring) -> None:
        ring.all_reduce(buffers[ring.rank])
        if ring.number % 3:
            ring.barrier()
        elif ring.rank == 1:
            raise RoundOver("left in the middle")

    counted = []
    for number in range(1, 301):
        seats.run(act, number=number)
        for buffer in buffers:
            buffer.fill(1)
        if number in (100, 300):
            counted.append((_descriptors(), threading.active_count(), _resident_bytes()))
    seats.close()

    assert counted[0][:2] == counted[1][:2]
    assert counted[1][2] - counted[0][2] < 2 << 20


@pytest.mark.parametrize("kind", CloseCode)
def test_a_close_message_is_read_as_it_was_packed(kind: CloseCode) -> None:
    """A text that is too long is cut; an incomplete message is not accepted."""
    raw = CloseMessage(kind, 7, "why").pack()

    assert close_message.unpack(raw) == CloseMessage(kind, 7, "why")
    assert close_message.unpack(raw[:-1]) is None
    assert close_message.unpack(raw[:5]) is None
    assert close_message.unpack(b"\xff" + raw[1:]) is None
    assert len(CloseMessage(kind, 7, "ä" * 2000).pack()) == close_message.MAX_BYTES
