"""The demo's command line, as far as it needs no cluster."""

import pytest

from e2e.demo.__main__ import main


def test_help_says_what_comes_out_and_how_long_it_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A first-time user learns what to expect before anything is built."""
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for word in (
        "--plain",
        "--compare",
        "--scheduling",
        "own-scheduler",
        "--overcommit",
        "--quick",
        "--output",
        "report.json",
        "demo.png",
        "STRICT",
    ):
        assert word in text
    assert "five minutes" in text


@pytest.mark.parametrize(
    "words",
    [
        *(["--plain", "--compare"], ["--scheduling", "none"], ["--fast"], ["now"]),
        *(["--overcommit", "1"], ["--overcommit", "9"], ["--overcommit", "much"]),
        *(["--overcommit", "nan"], ["--overcommit", "1.5", "--plain"]),
        ["--overcommit", "1.5", "--scheduling", "own-scheduler"],
    ],
)
def test_what_makes_no_sense_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad usage costs a line, not a cluster."""
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert "python -m e2e.demo" in error
    assert "SchedulingMode" not in error  # choices stand as they are written
