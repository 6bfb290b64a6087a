"""A member's two connections during operations; their errors say why a round has ended."""

from __future__ import annotations

import select
from collections.abc import Sequence

from edl.collective import close_message, frames, transport
from edl.collective.close_message import CloseCode, CloseMessage
from edl.collective.frames import Incoming, Outgoing, PeerClosed
from edl.collective.operations import Inbound, Out
from edl.collective.ring_setup import Pair
from edl.collective.transport import READ, WRITE, Waiter
from edl.errors import RoundOver


class Links:
    """The connections to the next member and from the previous one; not thread-safe."""

    def __init__(self, pair: Pair, waiter: Waiter, names: Sequence[str], rank: int) -> None:
        self._forward, self._backward = pair
        self._outgoing, self._incoming = Outgoing(pair.forward), Incoming(pair.backward)
        self._waiter = waiter
        self._name, self._previous_name = names[rank], names[rank - 1]
        self._next_name = names[(rank + 1) % len(names)]
        self._next_close: CloseMessage | None = None
        """The close message of the next member."""
        self.done = 0
        """Number of operations completed by this member."""

    def run(self, out: Out, inbound: Inbound) -> None:
        """Sends and receives until everything has been sent and `inbound` has ended.

        Args:
            out: Views to send; `inbound` may add to it.
            inbound: Views to fill with received bytes.

        Raises:
            RoundOver: A neighbour has closed its connections, or the call was interrupted.
        """
        self._check_next()
        self._outgoing.put(out)
        view = next(inbound, None)
        while view is not None or self._outgoing:
            self._waiter.check()
            progressed = bool(self._outgoing) and self._send()
            if view is not None:
                received_bytes = self._receive(view) if len(view) else 0
                if received_bytes == len(view):
                    view, progressed = next(inbound, None), True
                    self._outgoing.put(out)
                elif received_bytes:
                    view, progressed = view[received_bytes:], True
            if progressed:
                self._waiter.note_progress()
            else:
                self._wait(reading=view is not None)
        self.done += 1

    def check(self) -> None:
        """Raises `RoundOver` if the next member has closed its connection; does not wait."""
        if self._next_close is None:
            poll = select.poll()
            poll.register(self._forward.fileno(), READ)
            if poll.poll(0):
                self._receive_close()
        self._check_next()

    def fail(self, error: RoundOver) -> None:
        """Sends the reason for the end of the round to both neighbours, and closes the connections."""
        self._close(close_message.from_error(error, self._name, self.done))

    def leave(self) -> None:
        """Tells both neighbours that this member leaves, and closes the connections.

        Must not be called during an operation.
        """
        self._close(CloseMessage(CloseCode.LEFT, self.done, ""))

    def _close(self, message: CloseMessage) -> None:
        for link in (self._forward, self._backward):
            self._waiter.watch(link.fileno(), 0)
        frames.send_close(self._backward, message)
        self._outgoing.end(message)
        transport.disconnect(self._backward)
        transport.disconnect(self._forward)

    def _send(self) -> bool:
        try:
            return self._outgoing.send()
        except OSError as error:
            self._receive_close()
            text = f"{self._next_name} no longer receives data: {error.strerror or error}"
            raise RoundOver(text) from error

    def _receive(self, view: memoryview) -> int:
        try:
            return self._incoming.receive(view)
        except PeerClosed as closed:
            raise _error(closed.message, self._previous_name) from None
        except OSError as error:
            text = f"{self._previous_name} no longer sends data: {error.strerror or error}"
            raise RoundOver(text) from error

    def _wait(self, *, reading: bool) -> None:
        send_events = WRITE if self._outgoing else 0
        close_events = READ if self._next_close is None else 0
        self._waiter.watch(self._backward.fileno(), READ if reading else 0)
        self._waiter.watch(self._forward.fileno(), close_events | send_events)
        for descriptor, events in self._waiter.wait():
            if descriptor == self._forward.fileno() and events & ~WRITE:
                self._receive_close()

    def _receive_close(self) -> None:
        """Receives the next member's close message.

        Raises:
            RoundOver: There is no message, or the next member closed before it had received this whole
                operation.
        """
        message = frames.receive_close(self._forward)
        if message is None:
            text = f"{self._next_name} no longer receives data: {frames.NO_CLOSE_MESSAGE}"
            raise RoundOver(text)
        self._next_close = message
        self._check_next()

    def _check_next(self) -> None:
        """Raises `RoundOver` if the next member closed before it had received this whole operation."""
        message = self._next_close
        if message is not None and message.done <= self.done:
            raise _error(message, self._next_name)


def _error(message: CloseMessage | None, name: str) -> RoundOver:
    if message is None or message.code is CloseCode.LEFT:
        return RoundOver(f"{name} has left the round")
    return message.error()
