"""Commands of the SDK and of the servers answer alike to flags: two distributions have a parser each."""

import argparse
from collections.abc import Callable, Sequence

import edl.nearest
import pytest
from edl.jobs.flags import Parser as SdkParser
from hypothesis import example, given
from hypothesis import strategies as st

import policy.nearest
from runtime.command_line import Parser as ServerParser

Answer = tuple[argparse.Namespace | None, str]
"""What was parsed, or None and the error."""

PARSERS = (SdkParser, ServerParser)
FLAGS = ("--listen", "--log-level", "--log-format", "--quick", "--names")
WORDS = (
    *FLAGS,
    *(
        "--listn",
        "--LISTEN",
        "--list",
        "--log",
        "--level",
        "--colour",
        "--",
        "-",
        "-n",
        "-n4",
        "-x",
    ),
    *("--listen=", "--listen=--", "--listen--", "--listen=a:1", "--quick=yes", "--quick--"),
    *(
        "--names=a,b",
        "--log-level=-1",
        "dry-run",
        "--polcy",
        "--policy",
        "--policy=p",
        "file",
        "-1",
    ),
    *("--" + "l" * 200, "--log_level", "--no-listen", "run", "--épée", ""),
)


def _flat(kind: type[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = kind(prog="attic")
    parser.add_argument("--listen", required=True)
    parser.add_argument("--log-level", type=int)
    parser.add_argument("--log-format", choices=["json", "text"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--names", nargs="*")
    parser.add_argument("-n", type=int)
    return parser


def _nested(kind: type[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = kind(prog="attic")
    parser.add_argument("--listen")
    parser.add_argument("--quick", action="store_true")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("dry-run")
    command.add_argument("file")
    command.add_argument("--policy", required=True)
    program = commands.add_parser("run")
    program.add_argument("-n", type=int)
    program.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


SHAPES = (_flat, _nested)


def _answer(
    parser: argparse.ArgumentParser, words: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> Answer:
    """The error without the words around it, which are those of each distribution."""
    errors: list[str] = []

    def refuse(message: str) -> None:
        errors.append(message)
        raise SystemExit(2)

    parsers = [parser]
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to its subparsers
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - see above
            parsers += action.choices.values()
    for each in parsers:
        monkeypatch.setattr(each, "error", refuse)
    try:
        return parser.parse_args(words), ""
    except SystemExit:
        return None, errors[0]


def _answers(
    shape: Callable[[type[argparse.ArgumentParser]], argparse.ArgumentParser], words: Sequence[str]
) -> list[Answer]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return [_answer(shape(kind), words, monkeypatch) for kind in PARSERS]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--lisen=a:1"], "unrecognized arguments: --lisen (did you mean --listen?)"),
        (["--list=a:1"], "unrecognized arguments: --list (did you mean --listen?)"),
        (["--level", "3"], "unrecognized arguments: --level (did you mean --log-level?)"),
        (["--colour"], "unrecognized arguments: --colour"),
        (["--listen=--"], "unrecognized arguments: --listen=-- (did you mean --listen?)"),
        (["--listen--"], "unrecognized arguments: --listen-- (did you mean --listen?)"),
        ([], "the following arguments are required: --listen"),
        (["--listen"], "argument --listen: expected one argument"),
        (["--listen=a", "--log-level=x"], "argument --log-level: invalid int value: 'x'"),
    ],
)
def test_both_give_this_answer(words: list[str], error: str) -> None:
    """An unknown flag with the nearest one, an abbreviation, no value, a missing flag."""
    assert _answers(_flat, words) == [(None, error)] * 2


@given(shape=st.sampled_from(SHAPES), words=st.lists(st.sampled_from(WORDS), max_size=5))
@example(_flat, ["--listen=a", "--", "--colour"])
@example(_nested, ["run", "-n", "4", "train.py", "--lisen"])
@example(_nested, ["dry-run", "--polcy"])
def test_both_give_one_answer_to_any_words(
    shape: Callable[[type[argparse.ArgumentParser]], argparse.ArgumentParser], words: list[str]
) -> None:
    """The same values, or the same error."""
    server, sdk = _answers(shape, words)

    assert server == sdk


_NAMES = st.one_of(st.sampled_from([*FLAGS, *WORDS]), st.text("-lisTEN_og", max_size=12))


@given(
    name=_NAMES,
    known=st.lists(_NAMES.filter(bool), max_size=6),
    prefix=st.sampled_from(["", "--", "EDL_"]),
)
@example("EDL_FOO", ["EDL_JOB"], "EDL_")
@example("--" + "l" * 99, ["--" + "l" * 98], "--")
@example("listen", ["--listen"], "--")
def test_both_find_the_same_nearest_name(name: str, known: list[str], prefix: str) -> None:
    """Whether a name begins as the known ones do, or not."""
    assert edl.nearest.advice(name, known, prefix) == policy.nearest.advice(name, known, prefix)
