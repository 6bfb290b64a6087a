import fcntl
import subprocess
import sys
import termios
import time
from array import array
from pathlib import Path
from typing import IO

from e2e.cluster.machine import sweeper

ABSENT = "edl-test-no-such-cgroup"


def _unread(pipe: IO[bytes]) -> int:
    """How many bytes of a pipe its reader has not taken yet."""
    count = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def test_it_waits_until_its_starter_is_done(tmp_path: Path) -> None:
    """Directories stay as long as its standard input is open, and are gone after it."""
    input_dir, swept_dir = tmp_path / "kept", tmp_path / "swept"
    for place in (input_dir, swept_dir):
        (place / "below").mkdir(parents=True)
    command = [sys.executable, "-I", "-S", str(sweeper.__file__), ABSENT, str(swept_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:  # noqa: S603 - our own script
        assert process.stdin is not None
        process.stdin.write(b"still here")
        process.stdin.flush()
        while _unread(process.stdin) and process.poll() is None:
            time.sleep(0.01)
        assert process.poll() is None
        assert swept_dir.exists()
        process.stdin.close()
        code = process.wait(60)

    assert code == 0
    assert not swept_dir.exists()
    assert input_dir.exists()


def test_a_cgroup_that_is_not_there_is_removed_at_once() -> None:
    """No patience is spent on it."""
    assert sweeper.places(ABSENT) == []
    assert sweeper.remove(ABSENT)
