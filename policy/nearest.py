"""The nearest name that exists, for messages about one that does not. Pure.

Who calls: whatever reads names that people write: annotations, labels and fields of the policy
here, flags and environment variables in `runtime`.
"""

from collections.abc import Iterable
from difflib import get_close_matches

_MIN_PART = 4
"""Characters of a part of a name that is recognized as that name."""
_MAX_CHARS = 100
"""A longer name resembles none. Strangers write names of megabytes, and comparing takes long."""


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The known name that resembles `name` most, or contains it, whatever the case.

    It is "" where none is near.

    Args:
        name: The name that does not exist.
        known: Those that do.
        prefix: What all of them begin with, and what therefore says nothing about resemblance.
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
    """` (did you mean X?)` for the end of a message; "" where no known name is near."""
    match = nearest(name, known, prefix)
    return f" (did you mean {match}?)" if match else ""
