"""The webhook as a process, with an API server that does not answer."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.runtime.servers import ROOT, START_S, caller, make_ca, make_leaf, wait_until
from tests.support.kubeconfigs import write_kubeconfig
from tests.webhook.vectors import review


@contextmanager
def _started(directory: Path, server: str, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """Starts the webhook; it is gone afterwards."""
    kubeconfig = write_kubeconfig(directory / "kubeconfig", server)
    command = [
        *(sys.executable, "-m", "webhook", "--listen=127.0.0.1:0", "--drain-seconds=0"),
        "--probe-listen=127.0.0.1:0",
        *(f"--kubeconfig={kubeconfig}", f"--announce-file={directory / 'address'}"),
        *(f"--certificate-dir={directory / 'certificate'}", *flags),
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stderr=log)  # noqa: S603 - our own
    try:
        yield process
    finally:
        process.terminate()
        process.wait(START_S)


def test_serves_while_the_api_server_is_away(tmp_path: Path, absent_server: str) -> None:
    """It answers probes, is not ready, and stops on SIGTERM."""
    ca, ca_file = make_ca(tmp_path)
    leaf = make_leaf(ca, tmp_path / "leaf.pem")
    with (
        _started(tmp_path, absent_server, f"--tls-cert={leaf}") as process,
        caller(ca_file) as pool,
    ):
        wait_until((tmp_path / "address").exists, START_S)
        address, probes = (tmp_path / "address").read_text().split()
        ready = pool.request("GET", f"http://{probes}/readyz")
        answer = pool.request(
            "POST", f"https://{address}/mutate", json=review("pod-create-trainer")
        )
        pool.clear()
        process.send_signal(signal.SIGTERM)
        code = process.wait(START_S)

    assert ready.status == 503
    assert answer.json()["response"]["allowed"] is True
    assert "does not exist (yet)" in answer.json()["response"]["warnings"][0]
    assert code == 0


def test_waits_for_its_first_certificate(tmp_path: Path, absent_server: str) -> None:
    """Without a certificate it does not serve; it logs why, and SIGTERM ends the wait."""
    with _started(tmp_path, absent_server) as process:
        wait_until(lambda: b"rotation failed" in (tmp_path / "log").read_bytes(), START_S)
        process.send_signal(signal.SIGTERM)
        code = process.wait(START_S)

    assert code == 0
    assert not (tmp_path / "address").exists()
    assert b"Traceback" not in (tmp_path / "log").read_bytes()
