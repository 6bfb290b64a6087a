"""The experiments' command line, as far as it needs no cluster."""

from pathlib import Path

import orjson
import pytest

from e2e.experiments.__main__ import main


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["first", "collisions", "STRICT"]),
        (["first"], ["--virtual", "--real", "--quick", "--output", "report.json", "nine minutes"]),
        (["collisions"], ["--rounds", "--output", "collisions.json", "fifteen seconds"]),
        (
            ["forecasts"],
            ["--cases", "--from", "--slow", "forecasts.json", "95 %", "4 to 20 seconds"],
        ),
    ],
)
def test_help_says_what_comes_out_and_how_long_it_takes(
    words: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A first-time user learns what to expect before anything is built."""
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for word in expected:
        assert word in text


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["second"],
        ["first", "--real", "--virtual"],
        ["collisions", "--rounds", "many"],
        ["forecasts", "--cases", "0"],
    ],
)
def test_what_makes_no_sense_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad usage costs a line, not a cluster."""
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "python -m e2e.experiments" in capsys.readouterr().err


def test_a_virtual_run_writes_report_table_and_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shape of the report is that of the demo's; the criteria are printed too."""
    assert main(["first", "--virtual", "--quick", "--output", str(tmp_path)]) == 0
    report = orjson.loads((tmp_path / "report.json").read_bytes())
    assert {"machine", "commit", "bars", "virtual", "scenario"} == report.keys()
    assert {"figures", "curves", "outcome"} == report["virtual"].keys()
    criteria = {criterion["name"]: criterion for criterion in report["bars"]}
    assert criteria["virtual_first_trainer_worst_s"]["holds"]
    assert criteria["virtual_jobs_below_min"]["value"] == 0
    assert (tmp_path / "first.png").read_bytes().startswith(b"\x89PNG")
    text = capsys.readouterr().out
    assert "virtual_first_trainer_mean_s" in text
    assert "job-4" in text


def test_a_folder_that_cannot_be_written_costs_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback; the line names the file."""
    output_file = tmp_path / "taken"
    output_file.write_text("a file")
    assert main(["first", "--virtual", "--quick", "--output", str(output_file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("experiments: ")
    assert "taken" in error
