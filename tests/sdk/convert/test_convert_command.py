"""`edl convert` as a user calls it."""

import io
import re
from pathlib import Path

import pytest
import yaml
from edl import __main__

FILES = Path(__file__).parent / "files"
PADDLE = str(FILES / "paddle.yaml")

Output = pytest.CaptureFixture[str]


def test_the_command_prints_yaml_and_says_the_rest_aside(capsys: Output) -> None:
    """YAML on one stream, notes on the other."""
    code = __main__.main(["convert", PADDLE])
    output = capsys.readouterr()

    assert code == 0
    assert yaml.safe_load(output.out)["kind"] == "TrainingJob"
    assert re.findall(r"^(note|lost): line \d+: ", output.err, re.MULTILINE)


def test_a_file_that_is_missing_costs_one_line(tmp_path: Path, capsys: Output) -> None:
    """And exit code 2."""
    code = __main__.main(["convert", str(tmp_path / "none.yaml")])
    output = capsys.readouterr()

    assert (code, output.out) == (2, "")
    assert output.err.count("\n") == 1


def test_a_file_may_come_from_another_command(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """`-` reads standard input, and gives the same object; flags replace the file's limits."""
    __main__.main(["convert", PADDLE])
    from_file = yaml.safe_load(capsys.readouterr().out)
    from_file["spec"]["trainer"] |= {"min": 3, "max": 4}
    monkeypatch.setattr("sys.stdin", io.StringIO(Path(PADDLE).read_text()))
    code = __main__.main(["convert", "-", "--min", "3", "--max", "4"])
    from_stdin = yaml.safe_load(capsys.readouterr().out)

    assert code == 0
    assert from_stdin == from_file


def test_losses_are_accepted_only_where_something_is_created(capsys: Output) -> None:
    """The flag alone would look as if it had created the object."""
    assert __main__.main(["convert", PADDLE, "--accept-losses"]) == 2
    assert capsys.readouterr().err == (
        "edl: --accept-losses is for --apply: without it nothing is created\n"
    )


def test_nothing_is_created_where_meaning_would_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """Before kubectl is called; with the flag it is called once."""
    calls = tmp_path / "calls"
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\ncat > /dev/null\necho call >> {calls}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    refused = __main__.main(["convert", PADDLE, "--apply"])
    assert (refused, calls.exists()) == (2, False)
    assert "2 fields lose their meaning" in capsys.readouterr().err.splitlines()[-1]

    assert __main__.main(["convert", PADDLE, "--apply", "--accept-losses"]) == 0
    assert capsys.readouterr().out == "trainingjob example is created, with 2 to 6 trainers\n"
    assert calls.read_text() == "call\n"
