"""The message with which a member closes its connections: it gives the reason (pure).

A member that ends its round sends it to both neighbours. To the previous member it goes against the
ring's direction, where nothing else is sent. Neighbours pass a failure on, so that all members
report the cause and not only that a connection ended.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from edl.errors import Mismatch, RoundOver

_HEAD = struct.Struct("!BQH")
HEAD_BYTES = _HEAD.size
_MAX_TEXT = 1000
MAX_BYTES = HEAD_BYTES + _MAX_TEXT


class CloseCode(IntEnum):
    """The reasons with which a member closes its connections."""

    LEFT = 0
    """It closed its ring between two operations."""
    FAILED = 1
    MISMATCH = 2


class CloseMessage(NamedTuple):
    """The reason for the end of a member's connections."""

    code: CloseCode
    done: int
    """Number of operations that the sender has completed."""
    text: str

    def pack(self) -> bytes:
        """Encodes it; a text that is too long is cut."""
        text = self.text.encode()[:_MAX_TEXT]
        return _HEAD.pack(self.code, self.done, len(text)) + text

    def error(self) -> RoundOver:
        """Returns the error that the receiver raises."""
        error = Mismatch(self.text) if self.code == CloseCode.MISMATCH else RoundOver(self.text)
        error.from_peer = True
        return error


def from_error(error: RoundOver, member: str, done: int) -> CloseMessage:
    """Returns the message to send after an error.

    The text of a received error is passed on unchanged; to one that arose here the member's name is
    added.

    Args:
        error: What ended the round here.
        member: This member's name.
        done: Number of operations that it has completed.
    """
    if isinstance(error, Mismatch):
        return CloseMessage(CloseCode.MISMATCH, done, str(error))
    text = str(error) if error.from_peer else f"{member}: {error}"
    return CloseMessage(CloseCode.FAILED, done, text)


def unpack(raw: bytes) -> CloseMessage | None:
    """Decodes a message; None if it is incomplete or not of this protocol."""
    if len(raw) < HEAD_BYTES:
        return None
    code, done, length = _HEAD.unpack_from(raw)
    text = raw[HEAD_BYTES:]
    if code not in tuple(CloseCode) or len(text) < length:
        return None
    return CloseMessage(CloseCode(code), done, text[:length].decode(errors="replace"))
