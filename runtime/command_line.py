"""The argument parser of all commands. It checks for unknown flags before anything else.

Who calls: every `__main__.py`. argparse alone reports a missing flag before an unknown one, takes
the value of an unknown flag for a command, and accepts abbreviated flags.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from typing_extensions import override

from policy.nearest import advice

_NESTED = (argparse.PARSER, argparse.REMAINDER)
"""Positional arguments after which nothing belongs to this parser."""


class Parser(argparse.ArgumentParser):
    """An argument parser that suggests the nearest flag for an unknown one.

    Flags cannot be abbreviated: a new flag with the same beginning would change their meaning.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    @override
    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Checks all flags, then parses like argparse, which calls this for subcommands too."""
        words = list(sys.argv[1:] if args is None else args)
        unknown = self._unknown_flags(words)
        if unknown:
            known = [flag for flag in self._option_string_actions if flag.startswith("--")]
            flags = ", ".join(f"{flag}{advice(flag, known, '--')}" for flag in unknown)
            self.error(f"unrecognized arguments: {flags}")
        return super().parse_known_args(words, namespace)

    def _unknown_flags(self, words: Sequence[str]) -> list[str]:
        """Returns the unknown long flags among the words of this parser, without values."""
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
                if word == f"{flag}=--":  # argparse would make the value a list
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
            near = advice(str(value), names)
            text = f"{str(value)!r:.40} is not one of {', '.join(names)}{near}"
            raise argparse.ArgumentError(action, text)
