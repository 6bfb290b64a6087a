"""Reads JSON that another process or a file has given (pure)."""

from __future__ import annotations

import json
import math
from typing import Any


def loads(raw: bytes | bytearray | str) -> Any:
    """Reads a JSON text as RFC 8259 defines it.

    `json.loads` also accepts NaN and Infinity, makes infinity of 1e999, and leaves nesting to the
    interpreter's limit of recursion.

    Raises:
        ValueError: It is something else, has a number that no float holds, or is nested too deeply.
    """
    try:
        return json.loads(raw, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is not a number that a float holds")
    return number
