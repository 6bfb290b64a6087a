"""Suggests the nearest existing name in messages about unknown flags or variables. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MIN_PART = 4
"""Minimum length of an unknown name that suggests longer names which contain it."""
_MAX_CHARS = 100
"""Longer names get no suggestion: comparing names of megabytes would take long."""


def advice(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Returns ` (did you mean X?)` to append to a message; "" if no known name is similar.

    Args:
        name: The unknown name.
        known: The known names.
        prefix: Common prefix of all known names; the comparison ignores it.
    """
    if len(name) > _MAX_CHARS:
        return ""
    by_stem = {other.removeprefix(prefix).lower(): other for other in known}
    stem = name.removeprefix(prefix).lower()
    matches = get_close_matches(stem, by_stem, n=1)
    if not matches and len(stem) >= _MIN_PART:
        matches = [other for other in by_stem if stem in other]
    return f" (did you mean {by_stem[matches[0]]}?)" if matches else ""
