import subprocess
import sys
from pathlib import Path

from e2e.cluster.machine import sweeper

ABSENT = "edl-test-no-such-cgroup"


def test_it_waits_until_its_starter_is_done(tmp_path: Path) -> None:
    """Directories stay as long as its standard input is open, and are gone after it."""
    kept, swept = tmp_path / "kept", tmp_path / "swept"
    for place in (kept, swept):
        (place / "below").mkdir(parents=True)
    command = [sys.executable, "-I", "-S", str(sweeper.__file__), ABSENT, str(swept)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:  # noqa: S603 - our own script
        assert process.poll() is None
        assert swept.exists()
        assert process.stdin is not None
        process.stdin.close()
        code = process.wait(20)

    assert code == 0
    assert not swept.exists()
    assert kept.exists()


def test_a_cgroup_that_is_not_there_is_removed_at_once() -> None:
    """No patience is spent on it."""
    assert sweeper.places(ABSENT) == []
    assert sweeper.remove(ABSENT)
