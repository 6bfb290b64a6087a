"""Finds the known name that is nearest to an unknown name, for error messages. Pure.

It is used for names that people write: annotations, labels and fields of the policy, and flags and
environment variables in `runtime`.
"""

from collections.abc import Iterable
from difflib import get_close_matches

_MIN_PART = 4
"""Smallest number of characters by which a part of a name is recognised."""
_MAX_CHARS = 100
"""Longer names are not compared: callers may send megabytes, and comparing them would take long."""


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Returns the known name that is most similar to `name`, or contains it, ignoring case.

    Args:
        name: The unknown name.
        known: The known names.
        prefix: A prefix that all known names have; it is left out of the comparison.

    Returns:
        "" if no known name is similar.
    """
    if len(name) > _MAX_CHARS:
        return ""
    by_stem = {other.removeprefix(prefix).lower(): other for other in known}
    stem = name.removeprefix(prefix).lower()
    matches = get_close_matches(stem, by_stem, n=1)
    if not matches and len(stem) >= _MIN_PART:
        matches = [other for other in by_stem if stem in other]
    return by_stem[matches[0]] if matches else ""


def advice(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Returns ` (did you mean X?)` for the end of a message; "" if no known name is similar."""
    match = nearest(name, known, prefix)
    return f" (did you mean {match}?)" if match else ""
