"""Where the printed objects go: readers that have ended, and full disks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FLAGS = ("--name", "a", "--image", "a:1", "--min", "1", "--max", "2", "--data", "/data/x.npz")
LIMIT_S = 60


def _submit(folder: Path, stdout: int) -> tuple[int, str]:
    """Calls `edl submit` with that output; returns the exit code and what it complains of."""
    (folder / "model.py").write_text(
        "def model(): ...\ndef loss(outputs, labels): ...\ndef optimizer(parameters): ...\n"
    )
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "edl", "submit", "model.py", *FLAGS],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=folder,
    )
    return done.returncode, done.stderr


def test_a_reader_that_has_ended_is_no_error_of_edl(tmp_path: Path) -> None:
    """Such as a kubectl that is not installed: the shell names it, and nothing else is printed."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert _submit(tmp_path, writing) == (141, "")
    finally:
        os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="it has no /dev/full")
def test_a_full_disk_is_named_in_one_line(tmp_path: Path) -> None:
    """And nothing of it is repeated when Python ends."""
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        code, complaint = _submit(tmp_path, full)
    finally:
        os.close(full)

    assert code == 2
    assert complaint == "edl: cannot write the output: No space left on device\n"
