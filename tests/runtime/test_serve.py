import json
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from pydantic import ValidationError

from runtime import clock, tls
from runtime.settings import address
from tests.runtime.servers import (
    EchoSettings,
    Running,
    caller,
    make_ca,
    make_leaf,
    run_to_end,
    running,
    wait_until,
)

pytestmark = pytest.mark.timeout(60)  # starts real processes, which takes a busy machine seconds

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One service without TLS for all tests that only ask."""
    with running(tmp_path_factory.mktemp("plain"), "--max-body-bytes=4096") as server:
        yield server


@pytest.fixture
def http() -> Iterator[urllib3.PoolManager]:
    """A client without TLS."""
    with caller() as pool:
        yield pool


def _status(pool: urllib3.PoolManager, url: str) -> int:
    return pool.request("GET", url).status


def test_probes_and_metrics(plain: Running, http: urllib3.PoolManager) -> None:
    """/healthz, /readyz and /metrics answer on the port that serves."""
    ready = http.request("GET", f"http://{plain.address}/readyz")
    scrape = http.request("GET", f"http://{plain.address}/metrics")

    assert _status(http, f"http://{plain.address}/healthz") == 200
    assert ready.json() == {"ready": True, "draining": False, "answer": 42}
    assert b"process_cpu_seconds_total" in scrape.data
    assert scrape.headers["Content-Type"].startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("PUT", "/echo", 405), ("GET", "/boom", 500)],
)
def test_errors_are_json(
    plain: Running, http: urllib3.PoolManager, method: str, path: str, status: int
) -> None:
    """No error answers with HTML or a traceback."""
    answer = http.request(method, f"http://{plain.address}{path}")

    assert answer.status == status
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json()["error"]["status"] == status
    assert b"Traceback" not in answer.data


def test_wrong_method_names_the_right_ones(plain: Running, http: urllib3.PoolManager) -> None:
    """A 405 keeps the Allow header that HTTP prescribes."""
    answer = http.request("PUT", f"http://{plain.address}/echo")

    assert "POST" in answer.headers["Allow"]


def test_unexpected_error_is_logged_once_under_its_id(
    plain: Running, http: urllib3.PoolManager
) -> None:
    """The id that the client gets finds exactly one log line, which has the trace."""
    ident = http.request("GET", f"http://{plain.address}/boom").json()["error"]["id"]

    lines = [line for line in plain.log if line.get("id") == ident]

    assert len(lines) == 1
    assert lines[0]["path"] == "/boom"
    assert "KeyError" in lines[0]["trace"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"a": 1}', JSON, 200),
        (b'{"a": 1', JSON, 400),
        (b"", JSON, 400),
        (b'{"a": 1}', {"Content-Type": "text/plain"}, 415),
        (b" " * 5000, JSON, 413),
    ],
)
def test_bodies(
    plain: Running,
    http: urllib3.PoolManager,
    body: bytes,
    headers: dict[str, str],
    status: int,
) -> None:
    """A body that is no JSON, too long or of another type is refused, and serving goes on."""
    answer = http.request("POST", f"http://{plain.address}/echo", body=body, headers=headers)

    assert answer.status == status
    assert _status(http, f"http://{plain.address}/healthz") == 200


def test_chunked_body_is_capped_too(plain: Running, http: urllib3.PoolManager) -> None:
    """Leaving out Content-Length does not get a longer body in, or a cut one through."""
    parts = iter([b'{"a": "', b"x" * 5000, b'"}'])

    answer = http.request("POST", f"http://{plain.address}/echo", body=parts, headers=JSON)

    assert answer.status == 413


def test_long_request_line_is_refused(plain: Running, http: urllib3.PoolManager) -> None:
    """A request line over the limit gets 414, not memory."""
    answer = http.request("GET", f"http://{plain.address}/{'x' * 5000}")

    assert answer.status == 414


def test_silent_connections_hold_no_thread(plain: Running, http: urllib3.PoolManager) -> None:
    """Twice as many silent connections as threads delay nobody."""
    host, port = plain.address.split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(8)]

    begun = clock.monotonic_s()
    status = _status(http, f"http://{plain.address}/healthz")
    took_s = clock.monotonic_s() - begun
    for connection in silent:
        connection.close()

    assert status == 200
    assert took_s < 1.0


def test_stalled_handshakes_free_their_threads(tmp_path: Path) -> None:
    """Peers that stop in the middle of a handshake block callers for one timeout at most."""
    ca, ca_file = make_ca(tmp_path)
    leaf = make_leaf(ca, tmp_path / "leaf.pem")
    with running(tmp_path, f"--tls-cert={leaf}", "--threads=2") as server, caller(ca_file) as pool:
        host, port = server.address.split(":")
        stalled = [socket.create_connection((host, int(port))) for _ in range(2)]
        for connection in stalled:
            connection.sendall(b"\x16")
        begun = clock.monotonic_s()
        pool.connection_pool_kw["timeout"] = urllib3.Timeout(15.0)
        status = _status(pool, f"https://{server.address}/healthz")
        took_s = clock.monotonic_s() - begun
        for connection in stalled:
            connection.close()

        assert status == 200
        assert took_s < tls.IO_TIMEOUT_S + 3.0
        assert not [line for line in server.log if "trace" in line]


def test_renewed_certificate_needs_no_restart(tmp_path: Path) -> None:
    """New connections see the file's new certificate while open ones go on."""
    ca, ca_file = make_ca(tmp_path)
    leaf = make_leaf(ca, tmp_path / "leaf.pem")
    with running(tmp_path, f"--tls-cert={leaf}") as server, caller(ca_file) as pool:
        url = f"https://{server.address}/healthz"
        first = _serial(server.address, ca_file)
        before = _status(pool, url)
        make_leaf(ca, tmp_path / "leaf.pem")

        assert (before, _status(pool, url)) == (200, 200)
        assert _serial(server.address, ca_file) != first


def _serial(address: str, ca_file: Path) -> object:
    host, port = address.split(":")
    context = ssl.create_default_context(cafile=ca_file)
    with (
        socket.create_connection((host, int(port)), timeout=3) as raw,
        context.wrap_socket(raw, server_hostname=host) as secured,
    ):
        return (secured.getpeercert() or {})["serialNumber"]


def test_client_certificates(tmp_path: Path) -> None:
    """With a client CA, callers need a certificate of it and probes do not."""
    ca, ca_file = make_ca(tmp_path)
    leaf = make_leaf(ca, tmp_path / "leaf.pem")
    stranger_ca, _ = make_ca(tmp_path, "stranger")
    stranger = make_leaf(stranger_ca, tmp_path / "stranger-leaf.pem")
    flags = (f"--tls-cert={leaf}", f"--client-ca={ca_file}")
    with running(tmp_path, *flags) as server:
        url = f"https://{server.address}"
        with caller(ca_file) as nobody:
            probe = _status(nobody, f"{url}/healthz")
            refused = nobody.request("POST", f"{url}/echo", body=b"1", headers=JSON)
        with caller(ca_file, cert_file=str(leaf)) as known:
            accepted = known.request("POST", f"{url}/echo", body=b"1", headers=JSON)
        with (
            caller(ca_file, cert_file=str(stranger)) as other,
            pytest.raises(urllib3.exceptions.HTTPError),
        ):
            other.request("POST", f"{url}/echo", body=b"1", headers=JSON)

    assert (probe, refused.status, accepted.status) == (200, 403, 200)
    assert "certificate" in refused.json()["error"]["message"]


def test_sigterm_drains_first(tmp_path: Path) -> None:
    """After SIGTERM readiness says no while requests are answered; then the exit is clean."""
    with running(tmp_path, "--drain-seconds=0.5") as server, caller() as pool:
        url = f"http://{server.address}"
        assert _status(pool, f"{url}/readyz") == 200
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: _status(pool, f"{url}/readyz") == 503, 2.0)
        slow = pool.request("GET", f"{url}/slow")
        pool.clear()

        assert slow.status == 200
        assert server.process.wait(15.0) == 0
        assert [line["message"] for line in server.log][-2:] == ["watches ended", "stopped"]


def test_sigint_ends_it_at_once(tmp_path: Path) -> None:
    """Ctrl-C on a terminal does not wait for a drain."""
    with running(tmp_path, "--drain-seconds=30") as server:
        server.process.send_signal(signal.SIGINT)

        assert server.process.wait(10.0) == 0


def test_worker_dies_with_its_master(tmp_path: Path) -> None:
    """SIGKILL of the master leaves no worker that goes on serving."""
    with running(tmp_path) as server:
        wait_until(server.workers, 10.0)
        worker = server.workers()[0]
        server.process.kill()

        wait_until(lambda: not Path(f"/proc/{worker}").exists(), 2.0)


def test_killed_worker_is_replaced(tmp_path: Path) -> None:
    """SIGKILL of the worker costs a moment, not the service."""
    with running(tmp_path) as server, caller() as pool:
        wait_until(server.workers, 10.0)
        killed = server.workers()[0]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: server.workers() not in ([], [killed]), 10.0)

        assert _status(pool, f"http://{server.address}/healthz") == 200


@pytest.mark.parametrize(
    ("flags", "code", "line"),
    [
        (["--tls-cert=/nowhere/leaf.pem"], 1, "--tls-cert /nowhere/leaf.pem cannot be used"),
        (["--listen=192.0.2.1:1"], 1, "cannot listen on 192.0.2.1:1"),
        (["--listen=nonsense"], 2, "--listen is 'nonsense'"),
        (["--threads=0"], 2, "--threads is '0'"),
    ],
)
def test_bad_start_is_one_clear_line(flags: list[str], code: int, line: str) -> None:
    """A server that cannot start says why in one line and no traceback."""
    done = run_to_end(*flags)

    assert done.returncode == code
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_address_in_use_is_said(plain: Running) -> None:
    """Two servers on one port: the second one names the setting."""
    done = run_to_end(f"--listen={plain.address}")

    assert done.returncode == 1
    assert f"cannot listen on {plain.address}: Address already in use" in done.stderr


def test_service_that_cannot_be_built_ends_the_server() -> None:
    """A failing build is logged once and ends the process; it is not tried for ever."""
    done = run_to_end("--listen=127.0.0.1:0", "--broken")

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode != 0
    assert [line["message"] for line in lines].count("service cannot be built") == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:8443", ("127.0.0.1", 8443)),
        ("[::1]:0", ("::1", 0)),
        (":80", ("0.0.0.0", 80)),  # noqa: S104 - only parsed
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses(text: str, found: tuple[str, int]) -> None:
    """An address is host:port, with brackets around IPv6."""
    assert address(text) == found


@pytest.mark.parametrize("text", ["", "8443", "host:", "host:65536", "::1:80", "a:b:1", "h:-1"])
def test_addresses_that_are_none(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(ValidationError, match=r"such as 0\.0\.0\.0:8443"):
        EchoSettings(listen=text)
