"""A stream of frames each way round the ring: data, and at the end the last words.

Frames are what makes last words possible in the middle of an operation: whoever waits for data
learns at once that none will come, and why.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque
from itertools import islice

from edl import clock
from edl.exchange import farewell
from edl.exchange.farewell import Farewell
from edl.exchange.operations import Out

_HEAD = struct.Struct("!B3xI")
_DATA, _WORDS = 0, 1
_AT_ONCE = 16
"""Views that are given to the system in one call."""
_LAST_S = 0.02
"""How long last words may take, where the peer does not read."""
_LAST_BYTES = 1 << 20
"""Room for last words in the system, where the peer does not read at the moment."""
WORDLESS = "it said no last words: it died, or had no time for them"


class Outgoing:
    """To the next member."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._wire: deque[memoryview] = deque()
        """Head and body of each frame, in turn; what is sent already is cut off."""

    def put(self, out: Out) -> None:
        """Takes over what is to be sent."""
        while out:
            body = out.popleft()
            if len(body):
                self._wire.append(memoryview(_HEAD.pack(_DATA, len(body))))
                self._wire.append(body)

    def __bool__(self) -> bool:
        return bool(self._wire)

    def send(self) -> bool:
        """Sends what the system takes; False where it takes nothing.

        Raises:
            OSError: The connection is gone.
        """
        try:
            sent = self._link.sendmsg(list(islice(self._wire, _AT_ONCE)))
        except BlockingIOError:
            return False
        wire = self._wire
        while wire and sent >= len(wire[0]):
            sent -= len(wire.popleft())
        if sent:
            wire[0] = wire[0][sent:]
        return True

    def end(self, words: Farewell) -> None:
        """Completes the frame that is under way, and says last words; soon, or not at all."""
        whole = len(self._wire) % 2 == 0
        if whole and self._wire and len(self._wire[0]) == _HEAD.size:
            self._wire.clear()
        rest = b"".join(islice(self._wire, 2 if whole else 1))
        self._wire.clear()
        raw = words.pack()
        rest += _HEAD.pack(_WORDS, len(raw)) + raw
        with contextlib.suppress(OSError):  # gone already: it needs no words
            self._link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LAST_BYTES)
            self._link.settimeout(_LAST_S)
            self._link.sendall(rest)


class Incoming:
    """From the member before."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._head = b""
        self._left = 0
        """Bytes of the present frame that are still to come."""

    def receive(self, view: memoryview) -> int:
        """Fills a view as far as that goes; 0 where nothing is there.

        Raises:
            LastWords: There will be no more.
            OSError: The connection is gone.
        """
        try:
            if not self._left:
                self._begin()
            got = self._link.recv_into(view[: self._left])
        except BlockingIOError:
            return 0
        if not got:
            raise ConnectionResetError(WORDLESS)
        self._left -= got
        return got

    def _begin(self) -> None:
        heard = self._link.recv(_HEAD.size - len(self._head))
        if not heard:
            raise ConnectionResetError(WORDLESS)
        self._head += heard
        if len(self._head) < _HEAD.size:
            raise BlockingIOError
        kind, length = _HEAD.unpack(self._head)
        self._head = b""
        if kind == _WORDS:
            raise LastWords(last_words(self._link))
        self._left = length


def words_before(link: socket.socket) -> Farewell | None:
    """The last words of the member before, if nothing else comes first; data is left there.

    Raises:
        BlockingIOError: Nothing has come.
        OSError: The connection is gone.
    """
    head = link.recv(_HEAD.size, socket.MSG_PEEK)
    if not head:
        raise ConnectionResetError(WORDLESS)
    if head[0] != _WORDS or len(head) < _HEAD.size:
        return None
    link.recv(_HEAD.size)
    return last_words(link)


def tell_before(link: socket.socket, words: Farewell) -> None:
    """Says last words to the member before: nothing else goes that way, so there is room."""
    with contextlib.suppress(OSError):  # gone already: it needs no words
        link.send(words.pack())


class LastWords(Exception):  # noqa: N818 - what is said, no fault
    """The peer said this and will send nothing more."""

    def __init__(self, words: Farewell | None) -> None:
        """Keeps them.

        Args:
            words: What was said; None where it broke off.
        """
        super().__init__()
        self.words = words


def last_words(link: socket.socket) -> Farewell | None:
    """What is said now, or None where the connection ended without a word."""
    raw, ends = b"", clock.monotonic_s() + _LAST_S
    with contextlib.suppress(OSError):
        while farewell.read(raw) is None and len(raw) < farewell.MOST_BYTES:
            link.settimeout(max(0.001, ends - clock.monotonic_s()))
            heard = link.recv(farewell.MOST_BYTES - len(raw))
            if not heard:
                break
            raw += heard
    link.setblocking(False)
    return farewell.read(raw)
