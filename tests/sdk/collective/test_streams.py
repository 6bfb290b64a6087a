"""Operations without sockets, and other parts on their own: errors, limits, final states."""

import select
import struct
from collections import deque

import numpy as np
import pytest
from edl.collective import Interrupt, bundle, operations
from edl.collective.operations import RingPosition
from edl.collective.transport import Waiter
from edl.errors import RoundOver


def test_a_payload_of_impossible_length_ends_the_round() -> None:
    """No memory is allocated for it."""
    views = operations.gather(b"", [b"", b""], RingPosition(0, 2), deque())
    next(views)[:] = struct.pack("!Q", 1 << 40)
    with pytest.raises(RoundOver, match="1099511627776 bytes; the limit is 1048576"):
        next(views)


def test_a_broadcast_of_impossible_length_ends_the_round() -> None:
    """As for payloads."""
    views = bundle.ReceivedBroadcast().inbound(deque(), last=True)
    next(views)[:] = struct.pack("!QQ", 1 << 40, 3)
    with pytest.raises(RoundOver, match="a broadcast of 1099511627776 and 3 bytes is too large"):
        next(views)


def test_meta_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the source; the error has the limit."""
    monkeypatch.setattr(bundle, "_MAX_META", 4)
    with pytest.raises(ValueError, match=r"0 arrays with 5 bytes of meta .* for meta is 4 bytes"):
        bundle.encode_header(b"12345", [])


def test_little_is_sent_from_a_copy() -> None:
    """The sum may be written to the buffer before all members have this one's numbers."""
    flat, out = np.ones(3, np.float32), deque[memoryview]()
    operations.all_reduce(flat, np.empty(64, np.float32), RingPosition(0, 2), out)
    flat[:] = 7

    assert b"".join(out) == np.ones(3, np.float32).tobytes()


def test_an_interrupt_is_seen_until_it_is_cleared() -> None:
    """Setting and clearing it twice counts once; after `close` it is only a flag."""
    interrupt = Interrupt()
    interrupt.clear()
    for _ in range(2):
        interrupt.set()
    states = [interrupt.is_set, bool(select.select([interrupt], [], [], 0)[0])]
    for _ in range(2):
        interrupt.clear()
    states += [interrupt.is_set, bool(select.select([interrupt], [], [], 0)[0])]
    interrupt.close()
    interrupt.set()

    assert states == [True, True, False, False]
    assert interrupt.is_set
    interrupt.clear()


def test_a_wait_without_a_callback_is_a_wait() -> None:
    """It ends after its time-out."""
    interrupt = Interrupt()
    waiter = Waiter(interrupt, None)

    assert waiter.wait(0.3) == []
    waiter.note_progress()
    interrupt.close()


@pytest.mark.parametrize(
    "spec",
    [
        b"{",
        b"[" * 10_000,
        b"[1]",
        b'[["<f4"]]',
        b'[["O", [1]]]',
        b'[["f4,f4", [1]]]',
        b'[["nonsense", [1]]]',
        b'[["<f4", [-1]]]',
        b'[["<f4", [1.5]]]',
        b'[["<f4", [4611686018427387904]]]',
        b'[["<f4", [0, 9223372036854775808]]]',
    ],
)
def test_a_broadcast_of_another_form_ends_the_round(spec: bytes) -> None:
    """Whatever a neighbour of another version or with damaged memory sends."""
    views = bundle.ReceivedBroadcast().inbound(deque(), last=True)
    head = next(views)
    head[:] = struct.pack("!QQ", len(spec), 0)
    next(views)[:] = spec
    with pytest.raises(
        RoundOver, match=r"list of arrays of a broadcast is malformed|no memory for an array"
    ):
        next(views)
