import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from e2e.cluster import identity
from e2e.cluster.errors import ClusterError
from e2e.cluster.probe import Check, Prober
from e2e.cluster.process import Process
from runtime.certs import new_ca
from runtime.clock import now


class Server(BaseHTTPRequestHandler):
    """Ready at the third question about /slow, at once about /ready, never about the rest."""

    request_count = 0

    def do_GET(self) -> None:
        """Answers one question."""
        Server.request_count += 1
        ready = self.path == "/ready" or (self.path == "/slow" and Server.request_count >= 3)
        body = b'{"kind": "Node"}' if self.path == "/ready" else b""
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keeps quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    """Where it serves."""
    Server.request_count = 0
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def prober(tmp_path: Path) -> Iterator[Prober]:
    """With files of a CA of its own."""
    ca = new_ca("test", now())
    leaf = identity.client(ca, "admin", (), now())
    (tmp_path / "ca").write_bytes(ca.cert)
    (tmp_path / "cert").write_bytes(leaf.cert)
    (tmp_path / "key").write_bytes(leaf.key)
    started = Prober(tmp_path / "ca", tmp_path / "cert", tmp_path / "key")
    yield started
    started.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """Something that runs."""
    started = Process("sleeper", ["sh", "-c", "echo still busy; exec sleep 60"], tmp_path / "log")
    yield started
    started.kill()


def test_it_waits_until_all_are_ready(url: str, prober: Prober, process: Process) -> None:
    """The ready one is asked once, the slow one until it is."""
    prober.wait([Check(process, f"{url}/ready"), Check(process, f"{url}/slow")], 25.0)

    assert Server.request_count == 3


def test_one_that_is_late_is_named(url: str, prober: Prober, process: Process) -> None:
    """With the time it had, where it was asked, and its log."""
    assert process.pid
    with pytest.raises(ClusterError, match=r"^sleeper was not ready within 0 s .*/never\).*log\)$"):
        prober.wait([Check(process, f"{url}/never")], 0.1)


def test_one_that_ended_is_named(prober: Prober, process: Process) -> None:
    """Nobody waits for the time to pass, whether or not its port answers."""
    process.kill()
    with pytest.raises(ClusterError, match=r"^sleeper ended with exit code 137"):
        prober.wait([Check(process, "https://127.0.0.1:9/readyz")], 60.0)


def test_an_object_that_is_not_there_is_empty(prober: Prober, url: str) -> None:
    """So is one that nobody answers for; what is there is decoded."""
    assert prober.read(f"{url}/ready") == {"kind": "Node"}
    assert prober.read(f"{url}/never") == {}
    assert prober.read("http://127.0.0.1:9/ready") == {}
