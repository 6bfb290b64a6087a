"""Parses JSON from the API server, even if other clients have stored deeply nested objects. Pure.

Objects of custom kinds may be nested deeper than orjson can read if their schema keeps unknown fields. A
single one would make the whole list of its kind unreadable.
"""

import re
from typing import Any

import orjson

MAX_DEPTH = 200
"""Number of levels that are kept of a text too deep for orjson. Pods, the deepest kind that EDL reads, have about
twenty."""
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)


def loads(text: bytes) -> Any:
    """Returns the value of a JSON text; if it is too deep, its deepest parts are replaced by null.

    Raises:
        orjson.JSONDecodeError: The text is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        shallow = _shallow(text)
        if shallow is None:
            raise
    return orjson.loads(shallow)


def _shallow(text: bytes) -> bytes | None:
    """Returns the text with null for parts deeper than `MAX_DEPTH`, or None if there are no such parts."""
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
