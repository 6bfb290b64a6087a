"""What is to happen when during a run, such as `2s:+2, 40%:kill, 3.5s:kill master`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from edl.errors import SettingError

_WHEN = re.compile(r"(\d+(?:\.\d+)?)(s|%)")
_COUNT = re.compile(r"([+-])(\d+)")
_KILL = re.compile(r"kill(?: ([\w.-]+))?")
MASTER = "master"
"""The name of the master in `kill master`."""


@dataclass(frozen=True)
class Add:
    """Starts trainers."""

    count: int = 1


@dataclass(frozen=True)
class Remove:
    """Asks the youngest trainers to leave, by SIGTERM."""

    count: int = 1


@dataclass(frozen=True)
class Kill:
    """`kill -9` of the youngest trainer, or of one by its name."""

    name: str | None = None


@dataclass(frozen=True)
class Quit:
    """Ends the run."""


Act = Union[Add, Remove, Kill, Quit]


@dataclass(frozen=True)
class Entry:
    """An act and its time: after seconds, or when a share of all records is done."""

    at_s: float | None
    at_share: float | None
    act: Act


class Schedule:
    """Entries that have not happened yet."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = list(entries)

    def due(self, elapsed_s: float, share: float) -> list[Act]:
        """What is to happen now; each entry happens once.

        Args:
            elapsed_s: Since the run began.
            share: Of all records that are done, 0 to 1.
        """
        now = [entry for entry in self._entries if _is_due(entry, elapsed_s, share)]
        self._entries = [entry for entry in self._entries if entry not in now]
        return [entry.act for entry in now]

    @property
    def adds(self) -> bool:
        """Whether trainers are still to come at some time."""
        return any(isinstance(one.act, Add) and one.at_s is not None for one in self._entries)


def parse(text: str) -> Schedule:
    """Reads `WHEN:WHAT` entries with commas between them.

    WHEN is seconds (`2.5s`) or a share of all records (`40%`); WHAT is `+N`, `-N`, `kill`,
    `kill trainer-1` or `kill master`.

    Raises:
        SettingError: An entry cannot be read; the text names it.
    """
    return Schedule([_entry(part.strip()) for part in text.split(",") if part.strip()])


def _entry(text: str) -> Entry:
    when, _, what = (part.strip() for part in text.partition(":"))
    time, act = _WHEN.fullmatch(when), _act(what)
    if time is None or act is None:
        raise SettingError(
            f"schedule entry {text!r} cannot be read: write WHEN:WHAT, WHEN as 2.5s or 40%, "
            "WHAT as +1, -1, kill, kill trainer-1 or kill master"
        )
    number = float(time[1])
    if time[2] == "s":
        return Entry(number, None, act)
    return Entry(None, number / 100, act)


def _act(text: str) -> Act | None:
    count, kill = _COUNT.fullmatch(text), _KILL.fullmatch(text)
    if count is not None:
        return (Add if count[1] == "+" else Remove)(int(count[2]))
    return None if kill is None else Kill(kill[1])


def _is_due(entry: Entry, elapsed_s: float, share: float) -> bool:
    if entry.at_s is not None:
        return elapsed_s >= entry.at_s
    return entry.at_share is not None and share >= entry.at_share
