"""The books of a job: which trainer ids are open and how the others ended.

They live as one JSON annotation on the Job, so that one atomic write counts an ending exactly
once and a restart knows all of it. Pure; `reconciler` decides what to enter.
"""

import json
from dataclasses import replace
from math import isfinite

from policy.snapshot import Books

_SUMS = ("succeeded", "failed", "disrupted", "released")
_MOST_OPEN = 100_000
"""More open ids than this are nonsense, and would be slow to read."""


def parse(text: str) -> Books:
    """The books that `text` holds; empty or unreadable text gives empty books.

    An annotation is a user's to edit: nonsense in it must not stop a job. Ids at or above
    `next` cannot have been handed out and are dropped.
    """
    try:
        data = json.loads(text) if text else {}
        next_id = max(0, int(data.get("next", 0)))
        last_failure_s = float(data.get("lastFailure", 0.0))
        if not isfinite(last_failure_s):
            return Books()
        sums = {name: max(0, int(data.get(name, 0))) for name in _SUMS}
        return Books(
            next_id=next_id,
            open=_read_ids(str(data.get("open", "")), next_id),
            failures_in_row=max(0, int(data.get("failuresInRow", 0))),
            last_failure_s=max(0.0, last_failure_s),
            **sums,
        )
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return Books()


def show(books: Books) -> str:
    """The annotation's text; `parse(show(b)) == b`."""
    data: dict[str, object] = {"next": books.next_id, "open": _write_ids(books.open)}
    data |= {name: getattr(books, name) for name in _SUMS if getattr(books, name)}
    if books.failures_in_row:
        data |= {"failuresInRow": books.failures_in_row, "lastFailure": books.last_failure_s}
    return json.dumps(data, separators=(",", ":"))


def reserve(books: Books, count: int) -> tuple[Books, tuple[int, ...]]:
    """Books with `count` more ids open, and those ids."""
    ids = tuple(range(books.next_id, books.next_id + count))
    return replace(books, next_id=books.next_id + count, open=books.open | set(ids)), ids


def _read_ids(text: str, next_id: int) -> frozenset[int]:
    """Ranges such as "0-3,7" as ids below `next_id`; raises ValueError on anything else."""
    ids: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        ids += range(int(first), min(int(last or first) + 1, next_id))[:_MOST_OPEN]
        if len(ids) > _MOST_OPEN:
            raise ValueError(f"more than {_MOST_OPEN} ids")
    return frozenset(ids)


def _write_ids(ids: frozenset[int]) -> str:
    ranges: list[list[int]] = []
    for number in sorted(ids):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{a}-{b}" if a != b else str(a) for a, b in ranges)
