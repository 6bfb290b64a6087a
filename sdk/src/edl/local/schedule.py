"""The schedule of a run: timed actions such as `2s:+2, 40%:kill, 3.5s:kill master`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from edl.errors import SettingError

_WHEN = re.compile(r"(\d+(?:\.\d+)?)(s|%)")
_COUNT = re.compile(r"([+-])(\d+)")
MASTER = "master"
"""The name of the master in `kill master`."""
_KILL = re.compile(rf"kill(?: ({MASTER}|trainer-\d+|server-\d+))?")


@dataclass(frozen=True)
class Add:
    """An action that starts trainers."""

    count: int = 1


@dataclass(frozen=True)
class Remove:
    """An action that sends SIGTERM to the newest trainers."""

    count: int = 1


@dataclass(frozen=True)
class Kill:
    """An action that sends SIGKILL to the process of this name, or to the newest trainer."""

    name: str | None = None


@dataclass(frozen=True)
class Quit:
    """An action that ends the run."""


Action = Union[Add, Remove, Kill, Quit]


@dataclass(frozen=True)
class ScheduledAction:
    """An action and its time: after some seconds, or when a share of all records is done."""

    at_s: float | None
    """Seconds after the start of the run; None if `at_share` is set."""
    at_share: float | None
    """Share of all records, 0 to 1; None if `at_s` is set."""
    action: Action
    text: str
    """The entry as the user wrote it."""


class Schedule:
    """The actions that have not been performed yet."""

    def __init__(self, entries: Sequence[ScheduledAction]) -> None:
        self._entries = list(entries)

    def due(self, elapsed_s: float, share: float) -> list[Action]:
        """Removes and returns the actions that are due.

        Args:
            elapsed_s: Seconds since the start of the run.
            share: Share of all records that are done, 0 to 1.
        """
        due = [entry for entry in self._entries if _is_due(entry, elapsed_s, share)]
        self._entries = [entry for entry in self._entries if entry not in due]
        return [entry.action for entry in due]

    @property
    def pending(self) -> list[str]:
        """The entries that are not due yet, as the user wrote them."""
        return [entry.text for entry in self._entries]

    @property
    def adds(self) -> bool:
        """Whether an entry will start trainers at a given time."""
        return any(
            isinstance(entry.action, Add) and entry.at_s is not None for entry in self._entries
        )


def parse(text: str) -> Schedule:
    """Parses entries `WHEN:WHAT`, separated by commas.

    WHEN is seconds (`2.5s`) or a share of all records (`40%`); WHAT is `+N`, `-N`, `kill`,
    `kill trainer-1`, `kill server-0` or `kill master`.

    Raises:
        SettingError: An entry is invalid; the message names it.
    """
    return Schedule([_parse_entry(part.strip()) for part in text.split(",") if part.strip()])


def _parse_entry(text: str) -> ScheduledAction:
    time_text, _, action_text = (part.strip() for part in text.partition(":"))
    time, action = _WHEN.fullmatch(time_text), _parse_action(action_text)
    if time is None or action is None:
        raise SettingError(
            f"schedule entry {text!r} is invalid: write WHEN:WHAT, with 2.5s or 40% for WHEN, and "
            "+1, -1, kill, kill trainer-1, kill server-0 or kill master for WHAT"
        )
    number = float(time[1])
    if time[2] == "s":
        return ScheduledAction(number, None, action, text)
    return ScheduledAction(None, number / 100, action, text)


def _parse_action(text: str) -> Action | None:
    count, kill = _COUNT.fullmatch(text), _KILL.fullmatch(text)
    if count is not None:
        return Add(int(count[2])) if count[1] == "+" else Remove(int(count[2]))
    return None if kill is None else Kill(kill[1])


def _is_due(entry: ScheduledAction, elapsed_s: float, share: float) -> bool:
    if entry.at_s is not None:
        return elapsed_s >= entry.at_s
    return entry.at_share is not None and share >= entry.at_share
