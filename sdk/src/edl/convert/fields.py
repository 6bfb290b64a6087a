"""Reads the fields of a job file one by one; each is converted, noted or refused. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edl import nearest
from edl.errors import SettingError

Path = tuple[str, ...]
_MAX_SHOWN = 60
_MAX_DIGITS = 9
"""Maximum number of digits of a number; the largest int32 has ten digits."""


@dataclass
class Notes:
    """Notes about fields that a TrainingJob does not have in the same form."""

    hints: list[str] = field(default_factory=list)
    """Notes about fields without effect; each note says what EDL does instead."""
    losses: list[str] = field(default_factory=list)
    """Notes about fields whose meaning is lost."""


class Fields:
    """A mapping in a job file. `check_rest` refuses the file unless every field was read."""

    def __init__(
        self, value: Mapping[str, Any], lines: Mapping[Path, int], path: Path, notes: Notes
    ) -> None:
        """Creates a view of the mapping, none of whose fields counts as read.

        Args:
            value: The mapping.
            lines: Path of a field -> its line in the file.
            path: The mapping's path in the file.
            notes: Receives the notes about fields.
        """
        self._value, self._lines, self._path, self._notes = value, lines, path, notes
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return self._value.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return map(str, self._value)

    def at(self, *names: str) -> str:
        """Returns where a field or the mapping itself is, for messages: `line 7: spec.trainer.min`."""
        path = (*self._path, *names)
        line = self._lines.get(path, 0)
        return f"line {line}: {'.'.join(path)}" if line else ".".join(path)

    def sub(self, name: str) -> Fields:
        """Returns a nested mapping; an empty mapping if the field is missing.

        Raises:
            SettingError: The field is not a mapping.
        """
        value = self._take(name)
        if value is not None and not isinstance(value, Mapping):
            raise SettingError(f"{self.at(name)} is {_shown(value)}: write a mapping of fields")
        return Fields(value or {}, self._lines, (*self._path, name), self._notes)

    def subs(self, name: str) -> list[Fields]:
        """Returns the mappings in a list; an empty list if the field is missing.

        Raises:
            SettingError: The field is not a list of mappings.
        """
        path = (*self._path, name)
        values = self._take(name) or []
        if not isinstance(values, list) or not all(isinstance(item, Mapping) for item in values):
            raise SettingError(f"{self.at(name)} is {_shown(values)}: write a list of mappings")
        return [
            Fields(item, self._lines, (*path, str(index)), self._notes)
            for index, item in enumerate(values)
        ]

    def text(self, name: str, default: str = "") -> str:
        """Returns a field as a string; a number is converted to a string.

        Raises:
            SettingError: The field is a mapping, a list or a boolean.
        """
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, (Mapping, list, bool)):
            raise SettingError(f"{self.at(name)} is {_shown(value)}: write a text")
        return str(value)

    def number(self, name: str, default: int | None = None, least: int = 0) -> int | None:
        """Returns a field as a whole number; quoted numbers are accepted.

        Raises:
            SettingError: The field is not a whole number, or is less than `least`.
        """
        value = self._take(name)
        return default if value is None else whole_number(self.at(name), value, least)

    def flag(self, name: str) -> bool:
        """Returns a boolean field; False if the field is missing.

        Raises:
            SettingError: The field is neither true nor false.
        """
        value = self._take(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise SettingError(f"{self.at(name)} is {_shown(value)}: write true or false")
        return value

    def raw(self, name: str, kind: type = object) -> Any:
        """Returns a field unchanged; None if the field is missing.

        Raises:
            SettingError: The field's type is not `kind`.
        """
        value = self._take(name)
        if value is not None and not isinstance(value, kind):
            shape = "list" if kind is list else "mapping"
            raise SettingError(f"{self.at(name)} is {_shown(value)}: write a {shape}")
        return value

    def note(self, name: str, text: str) -> None:
        """If the field exists, marks it as read and notes what EDL does instead."""
        if self._take(name) is not None:
            self._notes.hints.append(f"{self.at(name)}: {text}")

    def lose(self, name: str, text: str) -> None:
        """If the field exists, marks it as read and notes that its meaning is lost."""
        if self._take(name) is not None:
            self._notes.losses.append(f"{self.at(name)}: {text}")

    def check_rest(self, known: Iterable[str] = ()) -> None:
        """Refuses fields that were not read.

        Args:
            known: Names of existing fields that were not read; messages may suggest them.

        Raises:
            SettingError: A field was not read; the message suggests the most similar known name.
        """
        for name in self._value:
            if name not in self._read:
                advice = nearest.advice(str(name), sorted({*self._read, *known}))
                raise SettingError(f"{self.at(str(name)[:_MAX_SHOWN])} does not exist{advice}")

    def _take(self, name: str) -> Any:
        self._read.add(name)
        return self._value.get(name)


def whole_number(at: str, value: Any, least: int = 0) -> int:
    """Returns a value as a whole number; quoted numbers are accepted.

    Args:
        at: Where the value is, for messages.
        value: The value in the file.
        least: The smallest valid number.

    Raises:
        SettingError: The value is not a whole number, or is less than `least`.
    """
    text = str(value)
    is_number = not isinstance(value, bool) and text.isascii() and text.isdecimal()
    if not is_number or len(text) > _MAX_DIGITS or int(text) < least:
        raise SettingError(f"{at} is {_shown(value)}: write a whole number from {least}")
    return int(text)


def first(*values: Any) -> Any:
    """Returns the first value that is not None."""
    return next((value for value in values if value is not None), None)


def without_empty(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the mapping without fields whose value is None, or an empty string, list or mapping."""
    return {
        name: value
        for name, value in mapping.items()
        if value is not None and not (isinstance(value, (str, Mapping, Sequence)) and not value)
    }


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
