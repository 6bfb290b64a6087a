"""Parses what the API server sends, however deep strangers have nested a part of it. Pure.

Objects of custom kinds may be nested deeper than orjson reads, where their schema keeps unknown fields: one
of them would make the whole list of its kind unreadable.
"""

import re
from typing import Any

import orjson

MAX_DEPTH = 200
"""Of what is read of a deeper text; pods, the deepest kind that EDL reads, have some twenty levels."""
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)


def loads(text: bytes) -> Any:
    """The value of a JSON text; where it is too deep to be parsed, null stands for its deepest parts.

    Raises:
        orjson.JSONDecodeError: it is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        shallow = _shallow(text)
        if shallow is None:
            raise
    return orjson.loads(shallow)


def _shallow(text: bytes) -> bytes | None:
    """The text without what is deeper than `MAX_DEPTH`; None where nothing is."""
    kept: list[bytes] = []
    depth, kept_until = 0, 0
    for token in _TOKEN.finditer(text):
        char = token[0][:1]
        if char in b"[{":
            depth += 1
            if depth == MAX_DEPTH + 1:
                kept += (text[kept_until : token.start()], b"null")
        elif char in b"]}":
            depth -= 1
            if depth == MAX_DEPTH:
                kept_until = token.end()
    return b"".join([*kept, text[kept_until:]]) if kept else None
