"""Callers that send slowly, or nothing, and what others get meanwhile."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import urllib3

from tests.runtime.servers import (
    START_S,
    Running,
    caller,
    echo_status,
    get_status,
    make_ca,
    make_leaf,
    running,
    wait_until,
)

pytestmark = pytest.mark.timeout(180)  # starts real processes, which takes a busy machine seconds


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that waits half a second for a request, shared by tests with slow callers."""
    flags = ("--threads=1", "--request-seconds=0.5")
    with running(tmp_path_factory.mktemp("hasty"), *flags) as server:
        yield server


@dataclass
class Gated:
    """A service whose GET /slow waits for a file, shared by tests that keep threads busy."""

    server: Running
    gate: Path
    stuck: Path


@pytest.fixture(scope="module")
def gated_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gated]:
    """The running service."""
    directory = tmp_path_factory.mktemp("gated")
    gate, stuck = directory / "gate", directory / "stuck"
    flags = ("--threads=1", f"--gate={gate}", f"--stuck={stuck}")
    with running(directory, *flags) as server:
        yield Gated(server, gate, stuck)


@pytest.fixture
def gated(gated_service: Gated) -> Gated:
    """The service, with its gate closed."""
    gated_service.gate.unlink(missing_ok=True)
    gated_service.stuck.unlink(missing_ok=True)
    return gated_service


def test_silent_connections_hold_no_thread(gated: Gated) -> None:
    """A caller gets an answer despite sixteen silent connections per thread."""
    with caller() as http, ExitStack() as stack:
        host, port = gated.server.address.split(":")
        for _ in range(16):
            stack.enter_context(socket.create_connection((host, int(port))))

        assert echo_status(http, f"http://{gated.server.address}") == 200


HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Slow: "
BODY = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n"


@pytest.mark.parametrize("begun", [HEAD, BODY], ids=["head", "body"])
def test_dripping_callers_are_dropped_while_others_are_answered(
    hasty: Running, begun: bytes, request: pytest.FixtureRequest
) -> None:
    """Head and body have a deadline each, which further bytes do not move."""
    with caller() as pool, ExitStack() as stack:
        host, port = hasty.address.split(":")
        dripping = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=START_S))
            for _ in range(8)
        ]
        for connection in dripping:
            connection.sendall(begun)
        wait_until(lambda: _answers(lambda: echo_status(pool, f"http://{hasty.address}")))
        wait_until(lambda: [_is_dropped(connection) for connection in dripping] == [True] * 8)
        scrape = pool.request("GET", f"http://{hasty.probes}/metrics").data.decode()

        reason = request.node.callspec.id
        assert f'edl_echo_connections_dropped_total{{reason="{reason}"}} 8.0' in scrape


def _is_dropped(connection: socket.socket) -> bool:
    """Sends one byte more; whether the server has ended the connection."""
    try:
        connection.sendall(b"1")
    except OSError:
        return True
    return False


def test_probes_answer_while_all_threads_are_busy(gated: Gated) -> None:
    """A kubelet must not restart a server because it has much to do."""
    server, begun = gated.server, _slow_calls(gated)
    with caller() as pool, ThreadPoolExecutor(2) as threads:
        slow = [threads.submit(get_status, pool, f"http://{server.address}/slow") for _ in range(2)]
        wait_until(lambda: _slow_calls(gated) > begun)
        probes = [
            get_status(pool, f"http://{server.probes}/{path}") for path in ("healthz", "readyz")
        ]
        gated.gate.touch()

        assert probes == [200, 200]
        assert [call.result() for call in slow] == [200, 200]


def test_a_request_that_does_not_end_fails_the_liveness_probe(gated: Gated) -> None:
    """A deadlock needs a restart; callers have given up long before."""
    server, begun = gated.server, _slow_calls(gated)
    with caller() as pool, ThreadPoolExecutor(1) as thread:
        slow = thread.submit(get_status, pool, f"http://{server.address}/slow")
        wait_until(lambda: _slow_calls(gated) > begun)
        gated.stuck.write_text(str(server.workers()[0]))
        stuck = pool.request("GET", f"http://{server.probes}/healthz")
        gated.gate.touch()

        assert stuck.status == 503
        assert "for 36" in stuck.json()["error"]["message"]  # an hour
        assert slow.result() == 200


def _slow_calls(gated: Gated) -> int:
    """How many calls of GET /slow have begun since the service has."""
    return sum(line["message"] == "slow begins" for line in gated.server.log)


def test_stalled_handshakes_are_dropped(tmp_path: Path) -> None:
    """Peers that stop in the middle of a handshake; others are answered meanwhile."""
    ca, ca_file = make_ca(tmp_path)
    flags = (f"--tls-cert={make_leaf(ca, tmp_path / 'leaf.pem')}", "--request-seconds=1")
    with (
        running(tmp_path, "--threads=1", *flags) as server,
        caller(ca_file) as pool,
        ExitStack() as stack,
    ):
        host, port = server.address.split(":")
        stalled = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=START_S))
            for _ in range(8)
        ]
        for connection in stalled:
            connection.sendall(b"\x16")
        wait_until(lambda: _answers(lambda: echo_status(pool, f"https://{server.address}")))
        dropped = [connection.recv(1) for connection in stalled]

        assert dropped == [b""] * 8
        assert not [line for line in server.log if "trace" in line]


def _answers(status: Callable[[], int]) -> bool:
    """Whether a request succeeds, apart from time-outs on a busy machine."""
    with suppress(urllib3.exceptions.HTTPError):
        return status() == 200
    return False


def test_a_full_server_lets_a_new_caller_in(tmp_path: Path) -> None:
    """In place of a silent connection, which is closed."""
    with (
        running(tmp_path, "--max-connections=2") as server,
        caller() as pool,
        ExitStack() as stack,
    ):
        host, port = server.address.split(":")
        silent = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=START_S))
            for _ in range(2)
        ]
        answer = echo_status(pool, f"http://{server.address}")

        assert answer == 200
        assert b"" in [_received(connection) for connection in silent]


def _received(connection: socket.socket) -> bytes | None:
    """What has arrived: nothing (None), or the end."""
    connection.setblocking(False)
    try:
        return connection.recv(1)
    except BlockingIOError:
        return None
    except ConnectionResetError:
        return b""
