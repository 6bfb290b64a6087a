"""Plain values as YAML that people like to read; texts of many lines stay as they are. Pure.

Every YAML reader finds the very same values in it: what is not plain is written as in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"(--)?[A-Za-z/][A-Za-z0-9_./=-]*(:[A-Za-z0-9_./=-]+)*")
_NOT_TEXT = re.compile(r"(true|false|null|yes|no|on|off|y|n|nan|inf|~)", re.IGNORECASE)
_BLOCK = re.compile(
    r"(?![ \t\n])[\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*"
)
"""What a block may hold as it is: printable, and no line end but LF."""
_WIDTH = 80
_UNSEEN = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def documents(*values: Mapping[str, Any]) -> str:
    """Documents of one stream."""
    return "---\n".join("\n".join(_lines(value)) + "\n" for value in values)


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [line for key, one in value.items() for line in _entry(f"{_scalar(key)}:", one)]
    return [line for one in value for line in _item(one)]


def _entry(name: str, value: Any) -> list[str]:
    """A key and its value, on one line where that fits."""
    if isinstance(value, str) and "\n" in value and _fits_block(value):
        return [f"{name} {_mark(value)}", *_block(value)]
    if not _nested(value):
        return [f"{name} {_flow(value)}"]
    indent = "" if _is_list(value) else "  "
    return [name, *(f"{indent}{line}" if line else "" for line in _lines(value))]


def _item(value: Any) -> list[str]:
    if not _nested(value) or _is_list(value):
        return [f"- {_flow(value)}"]
    first, *rest = _lines(value)
    return [f"- {first}", *(f"  {line}" if line else "" for line in rest)]


def _nested(value: Any) -> bool:
    """Whether it takes lines of its own: short lists of plain things do not."""
    if isinstance(value, Mapping):
        return bool(value)
    if not _is_list(value):
        return False
    return any(isinstance(one, Mapping) for one in value) or len(_flow(value)) > _WIDTH


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if _is_list(value):
        return "[" + ", ".join(_flow(one) for one in value) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and not _NOT_TEXT.fullmatch(value):
            return value
        return _quoted(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    return _UNSEEN.sub(
        lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False)
    )


def _fits_block(text: str) -> bool:
    """Whether a block gives it back unchanged."""
    return _BLOCK.fullmatch(text) is not None


def _mark(text: str) -> str:
    """How a block ends: with one line end, none, or many."""
    if not text.endswith("\n"):
        return "|-"
    return "|+" if text.endswith("\n\n") else "|"


def _block(text: str) -> list[str]:
    lines = text.split("\n")
    if text.endswith("\n"):
        lines.pop()
    return [f"  {line}" if line else "" for line in lines]
