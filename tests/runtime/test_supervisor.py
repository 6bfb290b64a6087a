"""gunicorn's worker: it is replaced when it ends or hangs, and ends with its arbiter."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.runtime.servers import (
    START_S,
    caller,
    echo_status,
    get_status,
    running,
    wait_until,
)

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
pytestmark = pytest.mark.timeout(180)  # starts real processes, which takes a busy machine seconds


@LINUX
def test_a_worker_that_ends_is_replaced_and_dies_with_its_arbiter(tmp_path: Path) -> None:
    """On the same ports; a killed arbiter leaves no worker, not even a stopped one."""
    with running(tmp_path) as server, caller() as pool:
        (killed,) = server.workers()
        os.kill(killed, signal.SIGKILL)
        worker = server.replacement_of(killed)

        assert echo_status(pool, f"http://{server.address}") == 200
        assert get_status(pool, f"http://{server.probes}/healthz") == 200
        assert any("was sent SIGKILL" in line["message"] for line in server.log)
        os.kill(worker, signal.SIGSTOP)  # it cannot look for itself
        server.process.kill()
        wait_until(lambda: not Path(f"/proc/{worker}").exists())


@LINUX
@pytest.mark.soak
def test_a_worker_that_hangs_is_replaced(tmp_path: Path) -> None:
    """One whose process stands still, and one that is alive but whose event loop is stuck."""
    stuck = tmp_path / "stuck"
    flags = ("--heartbeat-seconds=5", f"--stuck={stuck}")
    with running(tmp_path, *flags) as server, caller() as pool:
        (stopped,) = server.workers()
        os.kill(stopped, signal.SIGSTOP)
        worker = server.replacement_of(stopped)
        assert echo_status(pool, f"http://{server.address}") == 200
        stuck.write_text(str(worker))
        server.replacement_of(worker)

        assert echo_status(pool, f"http://{server.address}") == 200
        (reason,) = [line["reason"] for line in server.log if line["message"] == "stuck"]
        assert reason.startswith("the event loop has not run for 36")


@LINUX
def test_a_worker_that_hangs_from_its_start_on_is_replaced(tmp_path: Path) -> None:
    """It is stuck before it could send a heartbeat of its own accord."""
    stuck = tmp_path / "stuck"
    stuck.write_text("any")
    with running(tmp_path, "--heartbeat-seconds=1", f"--stuck={stuck}") as server:
        wait_until(lambda: server.log_file.read_text().count('"listening"') > 1)

        assert '"WORKER TIMEOUT' in server.log_file.read_text()


@LINUX
def test_workers_that_end_again_and_again_end_the_server(tmp_path: Path) -> None:
    """After three replacements, so that the kubelet's back-off applies."""
    with running(tmp_path) as server:
        (worker,) = server.workers()
        for _ in range(3):
            os.kill(worker, signal.SIGKILL)
            worker = server.replacement_of(worker)
        os.kill(worker, signal.SIGKILL)

        assert server.process.wait(START_S) == 1
        assert "4 workers have ended within 600 s" in server.log[-1]["message"]
