"""Last words, told against the ring's direction, where nothing else travels (pure).

A member that ends its round tells the one before it why: that one passes a failure on, so all
members hear of the cause and not just that a connection ended.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from edl.errors import Mismatch, RoundOver

_HEAD = struct.Struct("!BQH")
HEAD_BYTES = _HEAD.size
_MOST_TEXT = 1000
MOST_BYTES = HEAD_BYTES + _MOST_TEXT


class Kind(IntEnum):
    """Why a member ends."""

    LEFT = 0
    """It closed its ring between two operations."""
    FAILED = 1
    MISMATCH = 2


class Farewell(NamedTuple):
    """What a member says last."""

    kind: Kind
    done: int
    """How many operations it has completed."""
    text: str

    def pack(self) -> bytes:
        """For the wire; a text that is too long is cut."""
        text = self.text.encode()[:_MOST_TEXT]
        return _HEAD.pack(self.kind, self.done, len(text)) + text

    def error(self) -> RoundOver:
        """What it means for the one who hears it."""
        error = Mismatch(self.text) if self.kind == Kind.MISMATCH else RoundOver(self.text)
        error.told = True
        return error


def after(error: RoundOver, me: str, done: int) -> Farewell:
    """What to say after an error: what others told as they told it, else who says it.

    Args:
        error: What ended the round here.
        me: This member's name.
        done: How many operations it has completed.
    """
    if isinstance(error, Mismatch):
        return Farewell(Kind.MISMATCH, done, str(error))
    return Farewell(Kind.FAILED, done, str(error) if error.told else f"{me}: {error}")


def read(raw: bytes) -> Farewell | None:
    """What was said; None where it is cut short or none of ours."""
    if len(raw) < HEAD_BYTES:
        return None
    kind, done, length = _HEAD.unpack_from(raw)
    text = raw[HEAD_BYTES:]
    if kind not in tuple(Kind) or len(text) < length:
        return None
    return Farewell(Kind(kind), done, text[:length].decode(errors="replace"))
