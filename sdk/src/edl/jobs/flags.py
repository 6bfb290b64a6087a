"""What the subcommands share: the parser, numbers, and flags that are passed to trainers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

DONE, FAILED, BAD_USE = 0, 1, 2
CODES = (
    "exit codes: 0 done; 1 the job failed, or did not finish; 2 a flag, a file or the model cannot be "
    "used, and nothing was trained; 130 ended by Ctrl-C or q; 143 (of one trainer) it received "
    "SIGTERM and left the job in time"
)


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits."""
        self.exit(BAD_USE, f"{self.prog}: {' '.join(message.split())}; see `{self.prog} --help`\n")


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Returns a parser of whole numbers within a range."""
    upto = "" if most is None else f" to {most}"
    advice = (
        f"write a whole number from {least}{upto}"
        if upto
        else f"write a whole number, at least {least}"
    )

    def read(text: str) -> int:
        digits = text.strip()
        is_valid = digits.isascii() and digits.isdecimal() and len(digits) <= 18  # noqa: PLR2004 - int64
        if not is_valid or int(digits) < least or (most is not None and int(digits) > most):
            raise argparse.ArgumentTypeError(f"{text!r:.40}: {advice}")
        return int(digits)

    return read


class Flags:
    """A group of flags that can be passed on to another process."""

    def __init__(
        self, parser: argparse.ArgumentParser, title: str, about: str | None = None
    ) -> None:
        self._group = parser.add_argument_group(title, about)
        self._actions: list[argparse.Action] = []

    def add(self, *names: str, **how: Any) -> None:
        """Adds a flag; arguments as for `add_argument`."""
        self._actions.append(self._group.add_argument(*names, **how))

    def to_arguments(self, args: argparse.Namespace) -> list[str]:
        """Returns command-line arguments for the values that differ from their defaults.

        Each is one word, `--flag=value`, so that a value that starts with `-` is not parsed as a flag.
        """
        arguments: list[str] = []
        for action in self._actions:
            value = getattr(args, action.dest)
            if value == action.default:
                continue
            name = action.option_strings[-1]
            if action.nargs == 0:
                arguments.append(name)
            else:
                many = value if isinstance(value, list) else [value]
                arguments += [f"{name}={item}" for item in many]
        return arguments
