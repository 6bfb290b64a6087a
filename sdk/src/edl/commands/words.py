"""The parts of command lines that several commands share: parsers, numbers, flags said again."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import Any, NoReturn

DONE, FAILED, BAD_USE, INTERRUPTED = 0, 1, 2, 130
CODES = (
    "exit codes: 0 done; 1 the job failed, or did not come to its end; 2 a flag, a file or the model "
    "cannot be used, nothing was trained; 130 ended by Ctrl-C or q; 143 (of one trainer) it was "
    "asked to leave by SIGTERM and left in good order"
)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Ends the program."""
        self.exit(BAD_USE, f"{self.prog}: {' '.join(message.split())}; see `{self.prog} --help`\n")


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Reads a whole number of a range."""
    upto = "" if most is None else f" to {most}"
    wanted = (
        f"write a whole number from {least}{upto}"
        if upto
        else f"write a whole number, at least {least}"
    )

    def read(text: str) -> int:
        digits = text.strip()
        fine = digits.isascii() and digits.isdecimal() and len(digits) <= 18  # noqa: PLR2004 - int64
        if not fine or int(digits) < least or (most is not None and int(digits) > most):
            raise argparse.ArgumentTypeError(f"{text!r:.40}: {wanted}")
        return int(digits)

    return read


class Flags:
    """Flags that can be said again, for another process that is to do the same."""

    def __init__(
        self, parser: argparse.ArgumentParser, title: str, about: str | None = None
    ) -> None:
        self._group = parser.add_argument_group(title, about)
        self._said: list[argparse.Action] = []

    def add(self, *names: str, **how: Any) -> None:
        """As `add_argument`."""
        self._said.append(self._group.add_argument(*names, **how))

    def words(self, asked: argparse.Namespace) -> list[str]:
        """What differs from the defaults, as a command line says it; one word for each flag.

        One word, so that a value which begins with `-` is not taken for a flag.
        """
        found: list[str] = []
        for one in self._said:
            value = getattr(asked, one.dest)
            if value == one.default:
                continue
            name = one.option_strings[-1]
            if one.nargs == 0:
                found.append(name)
            else:
                many = value if isinstance(value, list) else [value]
                found += [f"{name}={each}" for each in many]
        return found


def line(words: list[str]) -> str:
    """A command line, to be shown or copied."""
    return " ".join(shlex.quote(word) for word in words)
