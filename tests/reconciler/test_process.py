"""The command as a process of its own."""

import subprocess
import sys

from tests.runtime.servers import ROOT, START_S


def test_help_says_what_every_flag_means() -> None:
    """And which environment variable stands for it."""
    command = [sys.executable, "-m", "reconciler", "--help"]
    done = subprocess.run(  # noqa: S603 - our own command
        command, cwd=ROOT, capture_output=True, text=True, timeout=START_S, check=False
    )

    assert done.returncode == 0
    assert "--lease-seconds" in done.stdout
    assert "EDL_RECONCILER_TICK_SECONDS" in done.stdout
