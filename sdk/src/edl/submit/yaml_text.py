"""Formats JSON values as readable YAML, with block scalars for texts of several lines. Pure.

Every YAML parser reads the same values from it: strings that are not plain are quoted as in JSON.
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
"""What a block scalar may contain: printable characters, and LF as the only line end."""
_WIDTH = 80
_UNSEEN = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def documents(*values: Mapping[str, Any]) -> str:
    """Formats the documents of one stream."""
    return "---\n".join("\n".join(_lines(value)) + "\n" for value in values)


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [line for key, item in value.items() for line in _entry(f"{_scalar(key)}:", item)]
    return [line for item in value for line in _item(item)]


def _entry(name: str, value: Any) -> list[str]:
    """Formats a key and its value, on one line if it fits."""
    if isinstance(value, str) and "\n" in value and _fits_block(value):
        return [f"{name} {_mark(value)}", *_block(value)]
    if not _nested(value):
        return [f"{name} {_flow(value)}"]
    indent = "" if _is_list(value) else "  "
    return [name, *(f"{indent}{line}" if line else "" for line in _lines(value))]


def _item(value: Any) -> list[str]:
    if not _nested(value) or _is_list(value):
        return [f"- {_flow(value)}"]
    first, *following = _lines(value)
    return [f"- {first}", *(f"  {line}" if line else "" for line in following)]


def _nested(value: Any) -> bool:
    """Whether a value needs several lines: short lists of scalars do not."""
    if isinstance(value, Mapping):
        return bool(value)
    if not _is_list(value):
        return False
    return any(isinstance(item, Mapping) for item in value) or len(_flow(value)) > _WIDTH


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if _is_list(value):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and not _NOT_TEXT.fullmatch(value):
            return value
        return _quoted(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    return _UNSEEN.sub(
        lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False)
    )


def _fits_block(text: str) -> bool:
    """Whether a block scalar preserves the text."""
    return _BLOCK.fullmatch(text) is not None


def _mark(text: str) -> str:
    """Returns the indicator of a block scalar: one final line end, none, or several."""
    if not text.endswith("\n"):
        return "|-"
    return "|+" if text.endswith("\n\n") else "|"


def _block(text: str) -> list[str]:
    lines = text.split("\n")
    if text.endswith("\n"):
        lines.pop()
    return [f"  {line}" if line else "" for line in lines]
