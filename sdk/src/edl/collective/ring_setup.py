"""Sets up a ring: connects to the next member while accepting the previous one."""

from __future__ import annotations

import socket
from typing import NamedTuple

from edl import clock
from edl.collective import close_message, frames
from edl.collective.acceptor import Acceptor, Listener
from edl.collective.close_message import CloseCode, CloseMessage
from edl.collective.connector import Connector
from edl.collective.handshake import RoundPosition
from edl.collective.transport import READ, Waiter
from edl.errors import RoundOver, one_line

_MAX_WAIT_S = 60.0


class Pair(NamedTuple):
    """A member's two connections."""

    forward: socket.socket
    """The connection to the next member."""
    backward: socket.socket
    """The connection from the previous member."""


def connect_neighbours(
    listener: Listener,
    position: RoundPosition,
    key: bytes,
    waiter: Waiter,
    *,
    names: list[str],
    address: str,
) -> Pair:
    """Connects to both neighbours; blocks until this is done.

    Args:
        listener: Accepts the previous member.
        position: This member's position.
        key: The job's token.
        waiter: Waits for events until it is interrupted.
        names: Names of all members, for messages.
        address: Address of the next member.

    Raises:
        RoundOver: A neighbour is gone or in a later round, or the call was interrupted.
    """
    next_name = names[(position.rank + 1) % position.world_size]
    previous_name = names[(position.rank - 1) % position.world_size]
    connector = Connector(next_name, address, position, key, waiter)
    acceptor = Acceptor(listener, position, key, waiter)
    try:
        while connector.link is None or acceptor.link is None:
            _poll(connector, acceptor, waiter)
            _check_next(waiter, connector.link, next_name)
            _check_previous(waiter, acceptor.link, previous_name)
    except BaseException as error:
        _send_close(connector.link, acceptor.link, error, names[position.rank])
        connector.close()
        acceptor.close()
        raise
    finally:
        acceptor.stop()
        waiter.note_progress()
    for link in (connector.link, acceptor.link):
        waiter.watch(link.fileno(), 0)
    return Pair(connector.link, acceptor.link)


def _poll(connector: Connector, acceptor: Acceptor, waiter: Waiter) -> None:
    now = clock.monotonic_s()
    connector.tick(now)
    acceptor.tick(now)
    due_s = min(connector.due_at(), acceptor.due_at()) - now
    for descriptor, _ in waiter.wait(max(0.0, min(_MAX_WAIT_S, due_s))):
        connector.handle(descriptor)
        acceptor.handle(descriptor)


def _check_next(waiter: Waiter, link: socket.socket | None, name: str) -> None:
    """Raises `RoundOver` if the next member has closed its connection; the error has the reason it sent."""
    if link is None:
        return
    try:
        first_byte = link.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        waiter.watch(link.fileno(), READ)
        return
    except OSError:
        first_byte = b""
    raise _closed_error(frames.receive_close(link) if first_byte else None, name)


def _check_previous(waiter: Waiter, link: socket.socket | None, name: str) -> None:
    """Raises `RoundOver` if the previous member has closed its connection.

    The previous member may also have sent data already, which is not read here.
    """
    if link is None:
        return
    try:
        message = frames.close_if_next(link)
    except BlockingIOError:
        waiter.watch(link.fileno(), READ)
        return
    except OSError:
        raise _closed_error(None, name) from None
    if message is not None:
        raise _closed_error(message, name)
    waiter.watch(link.fileno(), 0)


def _closed_error(message: CloseMessage | None, name: str) -> RoundOver:
    if message is None or message.code is CloseCode.LEFT:
        return RoundOver(f"{name} left while the ring was forming")
    return message.error()


def _send_close(
    forward: socket.socket | None, backward: socket.socket | None, error: BaseException, member: str
) -> None:
    """Notifies the connected neighbours, which may be set up already and wait for this member."""
    cause = error if isinstance(error, RoundOver) else RoundOver(one_line(error))
    message = close_message.from_error(cause, member, 0)
    if backward is not None:
        frames.send_close(backward, message)
    if forward is not None:
        frames.Outgoing(forward).end(message)
