"""Command-line parsing for all subcommands: the parser, numbers, and flags passed on to trainers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from edl import nearest
from edl.overriding import override

DONE, FAILED, BAD_USE, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 130, 141
CODES = (
    "exit codes: 0 success; 1 the job failed or did not finish; 2 a flag, a file or the model is "
    f"invalid and nothing was trained; {INTERRUPTED} ended by Ctrl-C or q; {CLOSED_PIPE} the reader of "
    "the output closed it; 143 (a trainer) it received SIGTERM and left the job in time"
)

_NESTED = (argparse.PARSER, argparse.REMAINDER)
"""Positional arguments that take all following words; this parser must not check those words."""


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line and suggests the nearest flag for unknown ones.

    Flags cannot be abbreviated: a flag added later could make an abbreviation ambiguous.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    @override
    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuses unknown flags, then parses like argparse, which calls this method for subcommands, too.

        argparse alone would report a missing required flag before a misspelt one.
        """
        words = list(sys.argv[1:] if args is None else args)
        unknown = self._unknown_flags(words)
        if unknown:
            known = [flag for flag in self._option_string_actions if flag.startswith("--")]
            flags = ", ".join(f"{flag}{nearest.advice(flag, known, '--')}" for flag in unknown)
            self.error(f"unrecognized arguments: {flags}")
        return super().parse_known_args(words, namespace)

    def _unknown_flags(self, words: Sequence[str]) -> list[str]:
        """Returns the long flags among `words` that this parser does not know, without their values."""
        nested = any(action.nargs in _NESTED for action in self._actions)
        unknown = []
        is_value = False
        for word in words:
            flag, equals, _ = word.partition("=")
            action = self._option_string_actions.get(flag)
            if is_value:
                is_value = False
            elif action is not None:
                is_value = action.nargs is None and not equals
                if word == f"{flag}=--":  # argparse would turn the value into a list
                    unknown.append(word)
            elif word.endswith("--") and word[:-2] in self._option_string_actions:
                unknown.append(word)
            elif word == "--" or (nested and not word.startswith("-")):
                break
            elif word.startswith("--"):
                unknown.append(flag)
        return unknown

    @override
    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuses a value that is not among the choices, and suggests the nearest one."""
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            near = nearest.advice(str(value), names)
            text = f"{str(value)!r:.40} is not one of {', '.join(names)}{near}"
            raise argparse.ArgumentError(action, text)

    @override
    def error(self, message: str) -> NoReturn:
        """Prints the error and exits."""
        self.exit(BAD_USE, f"{self.prog}: {' '.join(message.split())}; see `{self.prog} --help`\n")


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Returns a function that parses a whole number from `least` to `most`, as argparse's `type`."""
    advice = (
        f"write a whole number, at least {least}"
        if most is None
        else f"write a whole number from {least} to {most}"
    )

    def read(text: str) -> int:
        digits = text.strip()
        is_valid = digits.isascii() and digits.isdecimal() and len(digits) <= 18  # noqa: PLR2004 - fits int64
        if not is_valid or int(digits) < least or (most is not None and int(digits) > most):
            raise argparse.ArgumentTypeError(f"{text!r:.40}: {advice}")
        return int(digits)

    return read


class Flags:
    """A group of flags that can be passed on to another process; parsed arguments contain it as `flags`."""

    def __init__(self, parser: argparse.ArgumentParser, title: str) -> None:
        self._group = parser.add_argument_group(title)
        self._actions: list[argparse.Action] = []
        parser.set_defaults(flags=self)

    def add(self, *names: str, **how: Any) -> None:
        """Adds a flag; takes the arguments of `ArgumentParser.add_argument`."""
        self._actions.append(self._group.add_argument(*names, **how))

    def add_count(
        self, name: str, text: str, *, least: int = 1, most: int = 10**9, default: int | None = None
    ) -> None:
        """Adds a flag for a whole number from `least` to `most`; `text` is its help."""
        self.add(name, type=whole_number(least, most), default=default, metavar="N", help=text)

    def to_arguments(self, args: argparse.Namespace) -> list[str]:
        """Returns command-line arguments for the values that differ from their defaults.

        Each is a single word, `--flag=value`: a value that starts with `-` is then not parsed as a flag.
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
                values = value if isinstance(value, list) else [value]
                arguments += [f"{name}={item}" for item in values]
        return arguments
