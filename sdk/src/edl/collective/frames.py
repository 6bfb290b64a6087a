"""The stream of frames on each connection of the ring: data, and a close message at the end.

Frames allow a close message in the middle of an operation, so that a member that is waiting for data
learns at once why no data will come.
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
"""Maximum number of views per system call."""
_CLOSE_TIMEOUT_S = 0.02
"""Time limit for sending or receiving a close message."""
_CLOSE_BUFFER_BYTES = 1 << 20
"""Size of the send buffer for the close message, in case the peer is not reading."""
NO_CLOSE_MESSAGE = "it gave no reason: it died, or was stopped"


class Outgoing:
    """The stream of frames to the next member."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._queue: deque[memoryview] = deque()
        """The head and body of each frame in turn, without the bytes that were sent already."""

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
        """Sends as much as the system accepts; returns False if it accepts nothing.

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
        """Completes the current frame and sends a close message, if this is possible at once."""
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
        """Bytes of the current frame that are still missing."""

    def receive(self, view: memoryview) -> int:
        """Receives into a view; returns the number of bytes, or 0 if no data has arrived.

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
    """Returns the previous member's close message if it comes next; otherwise None, and consumes no data.

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
    """Sends a close message to the previous member; as nothing else is sent to it, the buffer is empty."""
    with contextlib.suppress(OSError):  # already closed: the peer needs no message
        link.send(message.pack())


class PeerClosed(Exception):  # noqa: N818 - a message, not a fault
    """The peer has sent its close message and will send nothing more."""

    def __init__(self, message: CloseMessage | None) -> None:
        """Creates the exception.

        Args:
            message: The peer's message; None if it was incomplete.
        """
        super().__init__()
        self.message = message


def receive_close(link: socket.socket) -> CloseMessage | None:
    """Receives a close message; returns None if the connection ends or the time limit passes first."""
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
