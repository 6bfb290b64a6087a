"""`edl convert` as a user calls it."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

FILES = Path(__file__).parent / "files"


def test_the_command_prints_yaml_and_says_the_rest_aside(tmp_path: Path) -> None:
    """YAML on one stream, notes on the other; a file that is missing costs one line."""
    done = _edl("convert", str(FILES / "paddle.yaml"))
    missing = _edl("convert", str(tmp_path / "none.yaml"))

    assert done.returncode == 0
    assert yaml.safe_load(done.stdout)["kind"] == "TrainingJob"
    assert re.findall(r"^(note|lost): line \d+: ", done.stderr, re.MULTILINE)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.count("\n") == 1


def test_nothing_is_created_where_meaning_would_be_lost(tmp_path: Path) -> None:
    """Before kubectl is called; with the flag it is called once."""
    calls = tmp_path / "calls"
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\ncat > /dev/null\necho call >> {calls}\n")
    program.chmod(0o755)
    words = ("convert", str(FILES / "paddle.yaml"), "--apply")
    refused = _edl(*words, folder=tmp_path)
    assert (refused.returncode, calls.exists()) == (2, False)
    assert "2 fields lose their meaning" in refused.stderr.splitlines()[-1]

    done = _edl(*words, "--accept-losses", folder=tmp_path)
    assert done.stdout == "trainingjob example is created, with 2 to 6 trainers\n"
    assert calls.read_text() == "call\n"


def _edl(*words: str, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environ = {"PATH": f"{folder}:/usr/bin:/bin"} if folder else {}
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "edl", *words],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
