"""A ring comes about: the link to the next member and the one from the member before, at once."""

from __future__ import annotations

import socket
from typing import NamedTuple

from edl import clock
from edl.errors import RoundOver, one_line
from edl.exchange import farewell, frames
from edl.exchange.door import Door
from edl.exchange.farewell import Farewell, Kind
from edl.exchange.handshake import Place
from edl.exchange.listener import Listener
from edl.exchange.reaching import Reach
from edl.exchange.waiter import READ, Waiter

_MOST_S = 60.0


class Pair(NamedTuple):
    """A member's two connections."""

    forward: socket.socket
    """To the next member."""
    backward: socket.socket
    """From the member before."""


def form(
    listener: Listener, here: Place, key: bytes, waiter: Waiter, *, names: list[str], address: str
) -> Pair:
    """Blocks until both links are there.

    Args:
        listener: Where the member before arrives.
        here: This member's place.
        key: The job's token.
        waiter: Ends it when it is interrupted.
        names: Of all members, for texts.
        address: Of the next member.

    Raises:
        RoundOver: A neighbour is gone, is at a later round, or this was interrupted.
    """
    after = names[(here.rank + 1) % here.world]
    before = names[(here.rank - 1) % here.world]
    reach = Reach(after, address, here, key, waiter)
    door = Door(listener, here, key, waiter)
    try:
        while reach.link is None or door.link is None:
            _turn(reach, door, waiter)
            _hear_after(waiter, reach.link, after)
            _hear_before(waiter, door.link, before)
    except BaseException as error:
        _part(reach.link, door.link, error, names[here.rank])
        reach.drop()
        door.drop()
        raise
    finally:
        door.shut()
        waiter.moved()
    for link in (reach.link, door.link):
        waiter.watch(link.fileno(), 0)
    return Pair(reach.link, door.link)


def _turn(reach: Reach, door: Door, waiter: Waiter) -> None:
    now = clock.monotonic_s()
    reach.tick(now)
    door.tick(now)
    due_s = min(reach.due_at(), door.due_at()) - now
    for descriptor, _ in waiter.wait(max(0.0, min(_MOST_S, due_s))):
        reach.handle(descriptor)
        door.handle(descriptor)


def _hear_after(waiter: Waiter, link: socket.socket | None, name: str) -> None:
    """The next member that came and went again ends the round; it may have said why."""
    if link is None:
        return
    try:
        ended = link.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        waiter.watch(link.fileno(), READ)
        return
    except OSError:
        ended = b""
    raise _gone(frames.last_words(link) if ended else None, name)


def _hear_before(waiter: Waiter, link: socket.socket | None, name: str) -> None:
    """As for the next member; but from this one data may come already."""
    if link is None:
        return
    try:
        words = frames.words_before(link)
    except BlockingIOError:
        waiter.watch(link.fileno(), READ)
        return
    except OSError:
        raise _gone(None, name) from None
    if words is not None:
        raise _gone(words, name)
    waiter.watch(link.fileno(), 0)


def _gone(words: Farewell | None, name: str) -> RoundOver:
    if words is None or words.kind is Kind.LEFT:
        return RoundOver(f"{name} left while the ring was forming")
    return words.error()


def _part(
    forward: socket.socket | None, backward: socket.socket | None, error: BaseException, me: str
) -> None:
    """A neighbour that has its links already must not wait for this one."""
    cause = error if isinstance(error, RoundOver) else RoundOver(one_line(error))
    words = farewell.after(cause, me, 0)
    if backward is not None:
        frames.tell_before(backward, words)
    if forward is not None:
        frames.Outgoing(forward).end(words)
