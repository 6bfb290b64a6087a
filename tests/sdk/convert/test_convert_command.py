"""`edl convert` as a user calls it."""

import io
import json
import re
import sys
from pathlib import Path

import pytest
from edl import __main__

FILES = Path(__file__).parent / "files"
PADDLE, VOLCANO = (str(FILES / name) for name in ("paddle.yaml", "volcano.yaml"))


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in of kubectl, alone on the PATH; the file that has what it was given."""
    given = tmp_path / "given"
    program = tmp_path / "kubectl"
    program.write_text(f'#!/bin/sh\nread -r object\necho "$* $object" >> {given}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return given


def _pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_the_command_prints_json_and_says_the_rest_aside(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """JSON on one stream, notes on the other."""
    assert __main__.main(["convert", PADDLE]) == 0
    output = capsys.readouterr()

    assert json.loads(output.out)["kind"] == "TrainingJob"
    assert re.findall(r"^(note|lost): line \d+: ", output.err, re.MULTILINE)


def test_names_in_a_file_do_nothing_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A field that does not exist is named without the characters that a terminal obeys."""
    file = tmp_path / "job.yaml"
    file.write_text(Path(PADDLE).read_text() + '"\\e[2J\\u202e": 1\n')
    assert __main__.main(["convert", str(file)]) == 2
    assert capsys.readouterr().err.endswith(": ?[2J? does not exist\n")


def test_bounds_of_the_command_take_the_place_of_the_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each by itself; without them a fixed number is named as one."""
    assert __main__.main(["convert", VOLCANO, "--min", "1", "--max", "9"]) == 0
    trainer = json.loads(capsys.readouterr().out)["spec"]["trainer"]
    assert (trainer["min"], trainer["max"]) == (1, 9)
    assert __main__.main(["convert", VOLCANO, "--max", "12"]) == 0
    trainer = json.loads(capsys.readouterr().out)["spec"]["trainer"]
    assert trainer["max"] == 12
    assert __main__.main(["convert", str(FILES / "trainjob.yaml")]) == 0
    assert "--min and --max make the job elastic" in capsys.readouterr().err


def test_a_file_may_come_by_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a command line of paddlecloud, too."""
    _pipe(monkeypatch, Path(PADDLE).read_bytes())
    assert __main__.main(["convert", "-"]) == 0
    piped = capsys.readouterr().out
    assert __main__.main(["convert", PADDLE]) == 0
    assert capsys.readouterr().out == piped
    _pipe(monkeypatch, (FILES / "submit.sh").read_bytes())
    assert __main__.main(["convert", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "TrainingJob"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "standard input is empty"),
        (b" \n\n", "standard input is empty"),
        (b"\xff\xfe", "standard input is not text in UTF-8: "),
        (b"#" * (2 << 20), "standard input has more than 1048576 bytes: that is not a job file"),
        (b"# nothing\n", "standard input has 0 documents"),
        (b"a: [", "standard input line 1 is not YAML"),
        (b"kind: Job", "standard input is 'Job'"),
    ],
)
def test_what_no_job_file_is_costs_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: bytes, text: str
) -> None:
    """By a pipe, with a name that says so."""
    _pipe(monkeypatch, data)
    assert __main__.main(["convert", "-"]) == 2
    output = capsys.readouterr()
    assert output.err.startswith(f"edl: {text}")
    assert (output.out, output.err.count("\n")) == ("", 1)


def test_files_that_cannot_be_read_cost_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is missing, a folder, and one that is too large."""
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (2 << 20))
    for path, text in (
        (tmp_path / "none.yaml", "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: Is a directory"),
        (large, "has more than 1048576 bytes"),
    ):
        assert __main__.main(["convert", str(path)]) == 2
        output = capsys.readouterr()
        assert output.err.startswith(f"edl: {path} {text}")
        assert (output.out, output.err.count("\n")) == ("", 1)


def test_nothing_is_created_where_meaning_would_be_lost(
    kubectl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before kubectl is called; with the flag it is called once, with the object that is printed."""
    assert __main__.main(["convert", PADDLE, "--apply"]) == 2
    refused = capsys.readouterr()
    assert not kubectl.exists()
    assert "2 fields would lose their meaning" in refused.err.splitlines()[-1]
    assert len(re.findall("^lost: ", refused.err, re.MULTILINE)) == 2
    assert refused.out == ""

    assert __main__.main(["convert", PADDLE, "--apply", "--accept-losses"]) == 0
    created = capsys.readouterr().out
    assert created == "trainingjob example created with 2 to 6 trainers\n"
    (line,) = kubectl.read_text().splitlines()
    words, _, body = line.partition(" {")
    assert words == "create -f -"
    assert __main__.main(["convert", PADDLE]) == 0
    assert json.loads("{" + body) == json.loads(capsys.readouterr().out)


def test_without_losses_apply_needs_no_flag(
    kubectl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What EDL does in another way is no loss."""
    path = str(FILES / "examplejob.yaml")
    text = Path(path).read_text().replace("  hostNetwork: true\n", "")
    without_servers = text.partition("  pserver:")[0]
    (kubectl.parent / "job.yaml").write_text(without_servers)
    assert __main__.main(["convert", str(kubectl.parent / "job.yaml"), "--apply"]) == 0
    assert capsys.readouterr().out.startswith("trainingjob example created")


def test_a_flag_for_apply_alone_is_refused_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    """It would be ignored in silence."""
    assert __main__.main(["convert", PADDLE, "--accept-losses"]) == 2
    assert capsys.readouterr().err == (
        "edl: --accept-losses needs --apply: without it nothing is created\n"
    )


def test_what_kubectl_says_is_one_line(
    kubectl: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refusal of the API server, and a kubectl that is missing."""
    program = kubectl.parent / "kubectl"
    program.write_text("#!/bin/sh\necho 'Error from server (Invalid):\n  max' >&2\nexit 1\n")
    words = ["convert", PADDLE, "--apply", "--accept-losses"]
    assert __main__.main(words) == 2
    (*_, last) = capsys.readouterr().err.splitlines()
    assert last.startswith("edl: kubectl refused TrainingJob example: Error from server")
    monkeypatch.setenv("PATH", str(kubectl.parent / "none"))
    assert __main__.main(words) == 2
    (*_, last) = capsys.readouterr().err.splitlines()
    assert last.startswith("edl: kubectl was not found: install it, or drop --apply")
