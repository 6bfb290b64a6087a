"""`python -m bench.commands_page`: writes docs/commands.md from the parsers of all commands."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

import edl.__main__

import admin.__main__
import extender.__main__
import master.__main__
import pserver.__main__
import reconciler.__main__
import webhook.__main__
from bench import written_page
from page.__main__ import main as page_main

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
_INTRODUCTION = """# Commands

`make reference` writes this page from the code; do not edit it.

`edl` is of the distribution `edl-sdk`, for users; the others are of `edl-control-plane`. Each flag of a server is also a variable (`env`), which
counts where the flag is not given; the chart has them as `settings`. An unknown flag is refused, with the nearest one, and flags cannot be
abbreviated. [cli.md](cli.md) has the commands of `kubectl edl`. Exit codes: 0, 1 after an error, which is one line, 2 for arguments that cannot be used.
"""
Main = Callable[[], object]
COMMANDS: Mapping[str, Main] = {
    "edl": edl.__main__.main,
    "python -m admin": admin.__main__.main,
    "python -m webhook": webhook.__main__.main,
    "python -m extender": extender.__main__.main,
    "python -m reconciler": reconciler.__main__.main,
    "python -m master": master.__main__.main,
    "python -m page": page_main,
    "python -m pserver": pserver.__main__.main,
}
"""The commands that are installed, by the words that call them."""


def parser_of(main: Main) -> argparse.ArgumentParser:
    """Returns the parser of a command, without running the command."""
    parsers: list[argparse.ArgumentParser] = []

    def note(parser: argparse.ArgumentParser, _: object = None) -> None:
        parsers.append(parser)

    show = mock.patch.object(argparse.ArgumentParser, "print_help", note)
    with show, mock.patch.object(sys, "argv", ["command", "--help"]):
        try:
            main()
        except SystemExit:
            return parsers[0]
    raise AssertionError("--help ends a command")


def page(commands: Mapping[str, Main] = COMMANDS) -> str:
    """Returns the text of the page: a section for each command, with its subcommands."""
    sections = [
        section for words, main in commands.items() for section in _sections(words, parser_of(main))
    ]
    return "\n".join([_INTRODUCTION, *sections])


def _sections(
    words: str, parser: argparse.ArgumentParser, about: str | None = None, level: int = 2
) -> Iterator[str]:
    subcommands = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001 - no public way
    lines = [f"{'#' * level} `{words}`\n", f"{_text(parser.description or about)}\n"]
    rows = [row for action in parser._actions if (row := _row(action))]  # noqa: SLF001 - as above
    if rows:
        lines.append("| Argument | Meaning |\n|---|---|\n" + "".join(rows))
    yield "\n".join(lines)
    for action in subcommands:
        help_texts = {choice.dest: choice.help for choice in action._choices_actions}  # noqa: SLF001 - as above
        for name, subparser in action.choices.items():
            yield from _sections(f"{words} {name}", subparser, help_texts.get(name), level + 1)


def _row(action: argparse.Action) -> str:
    """Returns an argument as a row; "" for help, subcommands and what has its row elsewhere."""
    is_other = isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))  # noqa: SLF001 - as above
    if is_other or action.help == argparse.SUPPRESS:
        return ""
    names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    choices = tuple(map(str, action.choices or ())) or tuple(_value(action).split("|"))
    takes_value = bool(action.option_strings) and action.nargs != 0
    is_choice = takes_value and len(choices) > 1
    shown = f"`{names} {choices[0]}`" if takes_value and not is_choice else f"`{names}`"
    if is_choice:
        shown += f" {', '.join(choices)}"
    default = "none" if action.default is None else str(action.default)
    help_text = _text(action.help).replace("%(default)s", default).replace("%%", "%")
    return f"| {shown} | {help_text} |\n"


def _value(action: argparse.Action) -> str:
    """Returns the placeholder of an argument's value."""
    return str(action.metavar or action.dest.upper())


def _text(text: str | None) -> str:
    """Returns a description in one line of Markdown."""
    return " ".join((text or "").split()).replace("|", "\\|").replace("<", "&lt;")


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the page.

    Returns:
        0.
    """
    return written_page.write("bench.commands_page", __doc__, PAGE, page, argv)


if __name__ == "__main__":
    sys.exit(main())
