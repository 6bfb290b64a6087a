"""What masters say of their jobs, read from their status page or from what they left behind. Pure.

Sources: `GET /v1/status` of a master (its protocol, version 1), and the key `outcome` of the
ConfigMap that its snapshots go to. Both are written by pods of the user: whatever cannot be read
counts as not said.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Any

import orjson

_LONGEST_REASON = 500
_MOST_TRAINERS = 10_000
_PREFIX = "trainer-"
_LONGEST_ID = 9


class State(StrEnum):
    """How far a job is."""

    WORK = "work"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Word:
    """The newest word of a master."""

    state: State
    at_s: float
    """When it was asked, in seconds since the epoch."""
    reason: str = ""
    """Why the job failed; one line."""
    uncommitted: Mapping[int, float] = field(default_factory=dict)
    """Trainer id -> seconds of training that would be lost with it."""
    leader: int | None = None
    """Id of the trainer of rank 0, where trainers work together and the master says which it is."""

    @property
    def final(self) -> bool:
        """Whether the job is over by it."""
        return self.state is not State.WORK


def of_status(body: bytes, at_s: float) -> Word | None:
    """The word in a status page; None where it is none."""
    try:
        page = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(page, dict) or not isinstance(page.get("state"), str):
        return None
    state = page["state"]
    if state not in (State.DONE, State.FAILED):
        state = State.WORK
    uncommitted, leader = _trainers(page.get("trainers"))
    return Word(State(state), at_s, _line(page.get("reason")), uncommitted, leader)


def of_outcome(data: Mapping[str, str], at_s: float) -> Word | None:
    """The final word in a ConfigMap's data; None where the job was not over."""
    state, _, reason = data.get("outcome", "").partition(":")
    if state not in (State.DONE, State.FAILED):
        return None
    return Word(State(state), at_s, _line(reason))


def _line(text: object) -> str:
    """Text of a user in one line of a sane length."""
    return " ".join(text.split())[:_LONGEST_REASON] if isinstance(text, str) else ""


def _trainers(trainers: Any) -> tuple[dict[int, float], int | None]:
    """What would be lost with each, and who leads."""
    if not isinstance(trainers, dict) or len(trainers) > _MOST_TRAINERS:
        return {}, None
    found: dict[int, float] = {}
    leader: int | None = None
    for name, page in trainers.items():
        number = str(name).removeprefix(_PREFIX)
        usable = number.isascii() and number.isdecimal() and len(number) <= _LONGEST_ID
        if not (usable and isinstance(page, dict)):
            continue
        seconds = page.get("uncommitted_s")
        if isinstance(seconds, int | float) and isfinite(seconds):
            found[int(number)] = max(0.0, float(seconds))
        if page.get("rank") is not False and page.get("rank") == 0:
            leader = int(number)
    return found, leader
