"""The message with the reason that a member sends before it closes its connections (pure).

A member that ends its round sends the message to both neighbours. To the previous member it is sent
against the ring's direction, in which nothing else is sent. Neighbours pass a failure on, so that all
members report the cause and not only a closed connection.
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
    """Why a member closes its connections."""

    LEFT = 0
    """The member closed its ring between two operations."""
    FAILED = 1
    MISMATCH = 2


class CloseMessage(NamedTuple):
    """Why a member closes its connections, and after how many operations."""

    code: CloseCode
    done: int
    """Number of operations that the sender has completed."""
    text: str

    def pack(self) -> bytes:
        """Encodes the message; truncates a long text."""
        text = self.text.encode()[:_MAX_TEXT]
        return _HEAD.pack(self.code, self.done, len(text)) + text

    def error(self) -> RoundOver:
        """Returns the error for the receiver to raise."""
        error = Mismatch(self.text) if self.code == CloseCode.MISMATCH else RoundOver(self.text)
        error.from_peer = True
        return error


def from_error(error: RoundOver, member: str, done: int) -> CloseMessage:
    """Returns the message to send after an error.

    If a neighbour sent the error, its text is passed on unchanged. Otherwise this member's name is put
    before the text, except for a mismatch, whose text names the members already.

    Args:
        error: The error that ended the round in this member.
        member: Name of this member.
        done: Number of operations that this member has completed.
    """
    if isinstance(error, Mismatch):
        return CloseMessage(CloseCode.MISMATCH, done, str(error))
    text = str(error) if error.from_peer else f"{member}: {error}"
    return CloseMessage(CloseCode.FAILED, done, text)


def unpack(raw: bytes) -> CloseMessage | None:
    """Decodes a message; returns None if it is incomplete or malformed."""
    if len(raw) < HEAD_BYTES:
        return None
    code, done, length = _HEAD.unpack_from(raw)
    text = raw[HEAD_BYTES:]
    if code not in tuple(CloseCode) or len(text) < length:
        return None
    return CloseMessage(CloseCode(code), done, text[:length].decode(errors="replace"))
