"""Requests in the shape in which kube-scheduler sends them (tests/vectors/extender)."""

import json
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[1] / "vectors" / "extender"


@cache
def _text(name: str) -> str:
    return (_FOLDER / f"{name}.json").read_text()


def sent(name: str) -> dict[str, Any]:
    """One's own copy, to change."""
    document: dict[str, Any] = json.loads(_text(name))
    return document
