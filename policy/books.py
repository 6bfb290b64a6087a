"""The books of a job: which trainer ids are open and how the others ended.

They live as one JSON annotation on the Job, so that one atomic write counts an ending exactly
once and a restart knows all of it. Pure; `reconciler` decides what to enter.
"""

import json
from dataclasses import replace

from policy.snapshot import Books

_SUMS = ("succeeded", "failed", "disrupted", "released")


def parse(text: str) -> Books:
    """The books that `text` holds; empty or unreadable text gives empty books.

    An annotation is a user's to edit: nonsense in it must not stop a job. Ids at or above
    `next` cannot have been handed out and are dropped.
    """
    try:
        data = json.loads(text) if text else {}
        next_id = max(0, int(data.get("next", 0)))
        sums = {name: max(0, int(data.get(name, 0))) for name in _SUMS}
        return Books(
            next_id=next_id,
            open=frozenset(i for i in _read_ids(str(data.get("open", ""))) if i < next_id),
            failures_in_row=max(0, int(data.get("failuresInRow", 0))),
            last_failure_s=max(0.0, float(data.get("lastFailure", 0.0))),
            **sums,
        )
    except (ValueError, TypeError, AttributeError, OverflowError):
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


def _read_ids(text: str) -> frozenset[int]:
    """Ranges such as "0-3,7" as ids; raises ValueError on anything else."""
    ids: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        ids.update(range(int(first), int(last or first) + 1)[:100_000])
    return frozenset(ids)


def _write_ids(ids: frozenset[int]) -> str:
    ranges: list[list[int]] = []
    for number in sorted(ids):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{a}-{b}" if a != b else str(a) for a, b in ranges)
