"""Parses untrusted JSON (pure)."""

from __future__ import annotations

import json
import math
from typing import Any


def loads(raw: bytes | bytearray | str) -> Any:
    """Parses a JSON text according to RFC 8259.

    Unlike this function, `json.loads` accepts NaN and Infinity, turns 1e999 into infinity, and raises
    RecursionError for deep nesting.

    Raises:
        ValueError: The text is not JSON, has a number outside the range of floats, or is nested too
            deeply.
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
