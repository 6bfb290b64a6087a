"""The bodies of calls about a round's keys, which members of the round share."""

import base64
import binascii
from typing import Annotated

from pydantic import AfterValidator, Field

from master.protocol import MAX_WAIT_S, Positive, ProcessRequest, RoundNumber

MAX_VALUE_BYTES = 1 << 20
_MAX_TEXT = (MAX_VALUE_BYTES + 2) // 3 * 4
_MAX_KEYS = 4096
_MAX_AMOUNT = 1 << 31


def _base64(text: str) -> str:
    """The text; a value is sent as base64, and kept as bytes."""
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("value is not base64") from error
    return text


Key = Annotated[str, Field(min_length=1, max_length=250)]
Keys = Annotated[list[Key], Field(min_length=1, max_length=_MAX_KEYS)]
Value = Annotated[str, Field(max_length=_MAX_TEXT), AfterValidator(_base64)]


class _KeyRequest(ProcessRequest):
    round: RoundNumber
    """A round of which the caller is a member."""


class KeySet(_KeyRequest):
    """Sets a key of a round."""

    key: Key
    value: Value
    """Bytes, as base64."""


class KeyDelete(_KeyRequest):
    """Deletes keys of a round that nobody needs any more, where they are set."""

    keys: Keys


class KeyAdd(_KeyRequest):
    """Adds to a key of a round, a counter whose value is a decimal number; 0 where it is missing."""

    key: Key
    amount: Annotated[int, Field(ge=-_MAX_AMOUNT, le=_MAX_AMOUNT)]
    call: Positive
    """Number of the call, one more than before; the same one again gets the same answer."""


class KeyGet(_KeyRequest):
    """Reads keys of a round, and waits until all of them are set."""

    keys: Keys
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 0.0
    """How long to wait; the answer then has the keys that are set."""
