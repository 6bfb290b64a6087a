import argparse
from pathlib import Path

import pytest

from runtime.command_line import Parser

ROOMS = (
    "bench",
    "e2e",
    "extender",
    "master",
    "pserver",
    "reconciler",
    "runtime",
    "sdk/src",
    "webhook",
)


def _refusal(parser: Parser, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(words)
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def _server() -> Parser:
    parser = Parser(prog="attic")
    parser.add_argument("--listen")
    parser.add_argument("--quick", action="store_true")
    command = parser.add_subparsers(dest="command").add_parser("dry-run")
    command.add_argument("file")
    command.add_argument("--policy", required=True)
    return parser


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["--lisen", "a:1"],
            "attic: error: unrecognized arguments: --lisen (did you mean --listen?)",
        ),
        (["--LISTEN=a:1"], "--LISTEN (did you mean --listen?)"),
        (["--listen", "a:1", "--colour"], "unrecognized arguments: --colour"),
        (["--listen--"], "unrecognized arguments: --listen-- (did you mean --listen?)"),
        (["--listen=--"], "unrecognized arguments: --listen=-- (did you mean --listen?)"),
        (["--quik", "dry-run", "f"], "--quik (did you mean --quick?)"),
        (
            ["dry-run", "--polcy=p"],
            "attic dry-run: error: unrecognized arguments: --polcy (did you mean --policy?)",
        ),
        (["dry-run", "f", "--listen=a:1"], "unrecognized arguments: --listen"),
    ],
)
def test_an_unknown_flag_is_refused_with_the_nearest(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything that is missing, and its value is not taken for a command."""
    assert _refusal(_server(), words, capsys).endswith(text)


def test_all_commands_use_it() -> None:
    """Another parser would accept the beginnings of flags, and name no nearest one."""
    root = Path(__file__).parents[2]
    files = [path for room in ROOMS for path in (root / room).rglob("*.py")]

    assert root / "runtime/command_line.py" in files
    assert [path for path in files if "ArgumentParser(" in path.read_text()] == []


def test_the_beginning_of_a_flag_is_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """A new flag with the same beginning would change what a script means."""
    assert _refusal(_server(), ["--list=a:1"], capsys).endswith("--list (did you mean --listen?)")


def test_values_and_arguments_of_others_are_not_taken_for_flags() -> None:
    """What follows a flag is its value; what follows a program or `--` is not ours."""
    parser = Parser()
    parser.add_argument("-n", type=int)
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)

    parsed = parser.parse_args(["-n", "4", "train.py", "--lisen", "a"])

    assert (parsed.n, parsed.arguments) == (4, ["--lisen", "a"])
    plain = Parser()
    plain.add_argument("--level", type=int)
    plain.add_argument("names", nargs="*")
    assert plain.parse_args(["--level", "-1", "a", "--", "--b"]).names == ["a", "--b"]
