"""Flags and variables that do not exist."""

import logging
from pathlib import Path

import pytest
from edl import __main__, nearest
from edl.master import settings, variables

GOOD = {"EDL_MASTER": "http://127.0.0.1:1", "EDL_TOKEN": "secret-1"}


def _assert_refused(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        __main__.main(words)

    stderr = capsys.readouterr().err
    assert ended.value.code == 2
    assert text in stderr
    assert stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["train", "m.py", "--dat=x"],
            "edl train: unrecognized arguments: --dat (did you mean --data?)",
        ),
        (["train", "m.py", "--data", "x", "--epoch", "3"], "--epoch (did you mean --epochs?); see"),
        (
            ["predict", "m.py", "--out", "x"],
            "edl predict: unrecognized arguments: --out (did you mean",
        ),
        (
            ["submit", "m.py", "--queue=--"],
            "unrecognized arguments: --queue=-- (did you mean --queue?)",
        ),
        (["run", "-n--", "m.py"], "unrecognized arguments: -n--"),
        (["submit", "m.py", "--colour"], "edl submit: unrecognized arguments: --colour; see"),
        (
            ["run", "--shedule", "1s:+1", "m.py"],
            "edl run: unrecognized arguments: --shedule (did you mean --schedule?)",
        ),
        (
            ["--vrsion", "run", "m.py"],
            "edl: unrecognized arguments: --vrsion (did you mean --version?)",
        ),
    ],
)
def test_an_unknown_flag_is_refused_with_the_nearest(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line with code 2, before flags that are missing; no flag can be abbreviated."""
    _assert_refused(words, text, capsys)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["rnu", "m.py"],
            "edl: argument COMMAND: 'rnu' is not one of train, predict, submit, ",
        ),
        (["rnu", "m.py"], "(did you mean run?); see `edl --help`"),
        (
            ["train", "m.py", "--data", "x", "--on-nan", "skp"],
            "edl train: argument --on-nan: 'skp' is not one of fail, skip (did you mean skip?); see",
        ),
        (["run"], "edl run: the following arguments are required: program; see"),
    ],
)
def test_a_word_that_is_not_among_the_choices_is_refused_with_the_nearest(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line with code 2; what may be left out is not called missing."""
    _assert_refused(words, text, capsys)


def test_flags_after_a_program_are_the_program_s(capsys: pytest.CaptureFixture[str]) -> None:
    """`edl run` passes them on, whatever they are called."""
    assert __main__.main(["run", "-n", "3", "no-such.py", "--shedule", "x"]) == 2
    assert "no-such.py is not a file" in capsys.readouterr().err


def test_an_unknown_variable_is_reported_with_the_nearest() -> None:
    """Where it resembles one that exists; never with its value."""
    environ = dict.fromkeys(("EDL_MASTERS", "EDL_GRACE_SECONDS", "EDL_TOKEN", "MASTERS"), "secret")

    assert variables.unknown_variables(environ) == [
        "the variable EDL_GRACE_SECONDS does not exist (did you mean EDL_GRACE_S?)",
        "the variable EDL_MASTERS does not exist (did you mean EDL_MASTER?)",
    ]


def test_variables_of_others_are_not_reported() -> None:
    """Those of programs, of EDL's servers, and of Services called edl-token or edl."""
    others = ("EDL_DATA_FOLDER", "EDL_MASTER_JOB", "EDL_TOKEN_SERVICE_HOST", "EDL_TOKEN_PORT")

    assert variables.unknown_variables(dict.fromkeys(others, "x")) == []
    assert variables.unknown_variables({"EDL_SERVICE_HOST": "x", "EDL_TOKEM": "x"}) != []


def test_the_readme_lists_all_variables() -> None:
    """Of trainers; a variable that is read and not described is as good as none."""
    page = (Path(__file__).parents[3] / "sdk/README.md").read_text()

    assert [
        name
        for name in variables.TRAINERS
        if f"| `{name}`" not in page and f", `{name}` |" not in page
    ] == []


def test_a_process_reports_unknown_variables_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start of a command, even on a terminal, and of a program's session; both go on."""
    for name, value in {**GOOD, "EDL_TRAINR": "a"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    caplog.set_level(logging.WARNING, "edl")
    report = ["the variable EDL_TRAINR does not exist (did you mean EDL_TRAINER?)"]
    variables.report_unknown.cache_clear()

    assert settings.load().master == GOOD["EDL_MASTER"]
    assert caplog.messages == report
    assert __main__.main(["run", "no-such.py"]) == 2
    assert caplog.messages == report
    variables.report_unknown.cache_clear()
    caplog.set_level(logging.WARNING, "edl")
    __main__.main(["run", "no-such.py"])
    assert caplog.messages == report * 2
    variables.report_unknown.cache_clear()


def test_a_part_of_a_name_stands_for_it() -> None:
    """As people write who left out a word; a few characters are part of too many names."""
    known = ("--batch-size", "--micro-batches")

    assert nearest.advice("--batch", ("--micro-batch-count",), "--") != ""
    assert nearest.advice("--mic", known, "--") == ""
    assert nearest.advice("--colour", known, "--") == ""
