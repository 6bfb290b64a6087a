"""Trainer accounting: which trainer ids of a job are open and how the others ended.

It is stored as one JSON annotation on the Job, so that one atomic write counts an ending exactly
once and a restart loses nothing. Pure; `reconciler` decides what to record.
"""

import json
from collections.abc import Collection
from dataclasses import replace
from math import isfinite
from typing import Any

from policy.cluster.snapshot import TrainerAccounting
from policy.names import ANNOTATION_BOOKS

VERSION = 1
"""Version of the text; a text without a version has version 1. A text with a newer version must not be
read as if its fields were known."""
_HEAD = f'{{"version":{VERSION},'
_SUMS = ("succeeded", "failed", "disrupted", "released")
_MAX_OPEN = 20_000
"""A larger number of open ids is taken for a corrupt annotation: a job has at most 10 000 trainers."""
_MIN_AHEAD = 8
"""Smallest number of ids that are reserved ahead."""
_MAX_COUNT = 2**31 - 1
"""The largest number that a Job's status can hold (batch/v1 JobStatus: int32)."""
_LATEST_S = 4_102_444_800.0
"""2100-01-01: a later failure cannot have happened, and its date might not be printable."""
_MAX_FATAL_CHARS = 500
"""Longer than the sentence about any failure, with the names of the pod and its container."""


def parse(text: str) -> TrainerAccounting:
    """Returns the accounting in `text`; empty or invalid text gives an empty accounting.

    Users can edit annotations, so invalid text must not stop a job, and no value may be larger
    than what a Job's status and a date can hold. Ids at or above `next` cannot have been assigned
    and are dropped.
    """
    try:
        document = json.loads(text) if text else {}
        next_id = _count(document, "next")
        last_failure_s = float(document.get("lastFailure", 0.0))
        if not isfinite(last_failure_s):
            return TrainerAccounting()
        sums = {name: _count(document, name) for name in _SUMS}
        return TrainerAccounting(
            next_id=next_id,
            open=_read_ids(str(document.get("open", "")), next_id),
            failures_in_row=_count(document, "failuresInRow"),
            last_failure_s=min(max(0.0, last_failure_s), _LATEST_S),
            fatal=str(document.get("fatal") or "")[:_MAX_FATAL_CHARS],
            excused=_count(document, "excused"),
            **sums,
        )
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return TrainerAccounting()


def version_error(text: str) -> str:
    """Returns why a job with this accounting must not be changed; "" if it may be.

    A job may not be changed if a newer EDL wrote its accounting before an admin went back to this
    version. This version would drop the fields that it does not know, and could give one id to two
    trainers.
    """
    if text.startswith(_HEAD) or '"version"' not in text:
        return ""
    try:
        version = json.loads(text)["version"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return ""
    if type(version) is not int or version <= VERSION:
        return ""
    return (
        f"{ANNOTATION_BOOKS} is of version {version}, of a newer EDL; this EDL reads {VERSION}: "
        "install that EDL again"
    )


def _count(document: dict[str, Any], name: str) -> int:
    return min(max(0, int(document.get(name, 0))), _MAX_COUNT)


def serialize(accounting: TrainerAccounting) -> str:
    """Returns the annotation's text; `parse(serialize(a)) == a`."""
    document: dict[str, object] = {
        "version": VERSION,
        "next": accounting.next_id,
        "open": _write_ids(accounting.open),
    }
    document |= {name: getattr(accounting, name) for name in _SUMS if getattr(accounting, name)}
    if accounting.excused:
        document["excused"] = accounting.excused
    if accounting.failures_in_row:
        document |= {
            "failuresInRow": accounting.failures_in_row,
            "lastFailure": accounting.last_failure_s,
        }
    if accounting.fatal:
        document["fatal"] = accounting.fatal[:_MAX_FATAL_CHARS]
    return json.dumps(document, separators=(",", ":"))


def reserve(accounting: TrainerAccounting, count: int) -> tuple[TrainerAccounting, tuple[int, ...]]:
    """Returns the accounting with `count` more open ids, and these ids."""
    ids = tuple(range(accounting.next_id, accounting.next_id + count))
    return replace(
        accounting, next_id=accounting.next_id + count, open=accounting.open | set(ids)
    ), ids


def ids_ahead(open_count: int, wanted: int) -> int:
    """Returns how many ids to reserve beyond those needed now, for a job that is still growing.

    The number of open ids is doubled. A job that grows to n trainers is then written about log2(n)
    times, and a crash never leaves more ids unused than used.

    Args:
        open_count: Number of the job's open ids, including those needed now.
        wanted: Number of trainers that the job may still get, excluding those needed now.
    """
    return max(0, min(wanted, max(_MIN_AHEAD, open_count)))


def give_back(accounting: TrainerAccounting, unused: Collection[int]) -> TrainerAccounting:
    """Returns the accounting without the newest unused ids, which the next trainers get.

    Args:
        accounting: The accounting so far.
        unused: Open ids for which no pod was ever requested. An unused id below a used one stays open.
    """
    next_id = accounting.next_id
    while next_id - 1 in unused:
        next_id -= 1
    open_ids = frozenset(number for number in accounting.open if number < next_id)
    return replace(accounting, next_id=next_id, open=open_ids)


def _read_ids(text: str, next_id: int) -> frozenset[int]:
    """Parses ranges such as "0-3,7" to ids below `next_id`; raises ValueError on other text."""
    ids: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        ids += range(int(first), min(int(last or first) + 1, next_id))[:_MAX_OPEN]
        if len(ids) > _MAX_OPEN:
            raise ValueError(f"more than {_MAX_OPEN} ids")
    return frozenset(ids)


def _write_ids(ids: frozenset[int]) -> str:
    ranges: list[list[int]] = []
    for number in sorted(ids):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{a}-{b}" if a != b else str(a) for a, b in ranges)
