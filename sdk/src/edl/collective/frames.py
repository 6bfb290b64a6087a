"""The stream of frames on each connection of the ring: data, and a close message at the end.

Frames make a close message possible in the middle of an operation: a member that waits for data
receives at once that none will come, and the reason.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque
from itertools import islice

from edl import clock
from edl.collective import close_message
from edl.collective.close_message import CloseMessage
from edl.collective.operations import Out

_HEAD = struct.Struct("!B3xI")
_DATA, _CLOSE = 0, 1
_MAX_VIEWS = 16
"""Views that are passed to the system in one call."""
_CLOSE_TIMEOUT_S = 0.02
"""How long sending or receiving a close message may take."""
_CLOSE_BUFFER_BYTES = 1 << 20
"""Send buffer for the close message, in case the peer does not read at the moment."""
NO_CLOSE_MESSAGE = "it sent no reason: it died, or ran out of time"


class Outgoing:
    """The stream of frames to the next member."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._queue: deque[memoryview] = deque()
        """Head and body of each frame, alternately, without the bytes that were sent."""

    def put(self, out: Out) -> None:
        """Moves all views of `out` into the queue, each as one frame."""
        while out:
            body = out.popleft()
            if len(body):
                self._queue.append(memoryview(_HEAD.pack(_DATA, len(body))))
                self._queue.append(body)

    def __bool__(self) -> bool:
        return bool(self._queue)

    def send(self) -> bool:
        """Sends what the system accepts; returns False if that is nothing.

        Raises:
            OSError: The connection is gone.
        """
        try:
            sent = self._link.sendmsg(list(islice(self._queue, _MAX_VIEWS)))
        except BlockingIOError:
            return False
        queue = self._queue
        while queue and sent >= len(queue[0]):
            sent -= len(queue.popleft())
        if sent:
            queue[0] = queue[0][sent:]
        return True

    def end(self, message: CloseMessage) -> None:
        """Completes the frame under way and sends a close message, if that is possible at once."""
        at_head = len(self._queue) % 2 == 0
        if at_head and self._queue and len(self._queue[0]) == _HEAD.size:
            self._queue.clear()
        tail = b"".join(islice(self._queue, 2 if at_head else 1))
        self._queue.clear()
        raw = message.pack()
        tail += _HEAD.pack(_CLOSE, len(raw)) + raw
        with contextlib.suppress(OSError):  # already closed: the peer needs no message
            self._link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CLOSE_BUFFER_BYTES)
            self._link.settimeout(_CLOSE_TIMEOUT_S)
            self._link.sendall(tail)


class Incoming:
    """The stream of frames from the previous member."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._head = b""
        self._remaining_bytes = 0
        """Bytes of the current frame that were not received yet."""

    def receive(self, view: memoryview) -> int:
        """Receives into a view; returns the number of bytes, 0 if none has arrived.

        Raises:
            PeerClosed: The peer has sent its close message.
            OSError: The connection is gone.
        """
        try:
            if not self._remaining_bytes:
                self._read_head()
            received_bytes = self._link.recv_into(view[: self._remaining_bytes])
        except BlockingIOError:
            return 0
        if not received_bytes:
            raise ConnectionResetError(NO_CLOSE_MESSAGE)
        self._remaining_bytes -= received_bytes
        return received_bytes

    def _read_head(self) -> None:
        data = self._link.recv(_HEAD.size - len(self._head))
        if not data:
            raise ConnectionResetError(NO_CLOSE_MESSAGE)
        self._head += data
        if len(self._head) < _HEAD.size:
            raise BlockingIOError
        kind, length = _HEAD.unpack(self._head)
        self._head = b""
        if kind == _CLOSE:
            raise PeerClosed(receive_close(self._link))
        self._remaining_bytes = length


def close_if_next(link: socket.socket) -> CloseMessage | None:
    """Returns the previous member's close message if no data precedes it; data is not consumed.

    Raises:
        BlockingIOError: Nothing has arrived.
        OSError: The connection is gone.
    """
    head = link.recv(_HEAD.size, socket.MSG_PEEK)
    if not head:
        raise ConnectionResetError(NO_CLOSE_MESSAGE)
    if head[0] != _CLOSE or len(head) < _HEAD.size:
        return None
    link.recv(_HEAD.size)
    return receive_close(link)


def send_close(link: socket.socket, message: CloseMessage) -> None:
    """Sends a close message to the previous member, where no data fills the send buffer."""
    with contextlib.suppress(OSError):  # already closed: the peer needs no message
        link.send(message.pack())


class PeerClosed(Exception):  # noqa: N818 - a message, not a fault
    """The peer has sent its close message and will send nothing more."""

    def __init__(self, message: CloseMessage | None) -> None:
        """Stores the message.

        Args:
            message: The peer's; None if it was incomplete.
        """
        super().__init__()
        self.message = message


def receive_close(link: socket.socket) -> CloseMessage | None:
    """Receives a close message; None if the connection ends, or the time is over, before it."""
    raw, deadline = b"", clock.monotonic_s() + _CLOSE_TIMEOUT_S
    with contextlib.suppress(OSError):
        while close_message.unpack(raw) is None and len(raw) < close_message.MAX_BYTES:
            link.settimeout(max(0.001, deadline - clock.monotonic_s()))
            data = link.recv(close_message.MAX_BYTES - len(raw))
            if not data:
                break
            raw += data
    link.setblocking(False)
    return close_message.unpack(raw)
