import json
import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import urllib3
from pydantic import ValidationError

from runtime.certs import Pair
from runtime.serve import ServeError, run
from runtime.settings import address
from tests.runtime.servers import (
    START_S,
    EchoSettings,
    Running,
    caller,
    make_ca,
    make_leaf,
    run_to_end,
    running,
    service,
    wait_until,
)

pytestmark = pytest.mark.timeout(180)  # starts real processes, which takes a busy machine seconds

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service without TLS, shared by tests that only send requests."""
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
    """A body that is not JSON, too long or of another type is refused, and serving continues."""
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
    """A caller gets an answer despite sixteen silent connections per thread."""
    host, port = plain.address.split(":")
    with ExitStack() as stack:
        for _ in range(16 * EchoSettings().threads):
            stack.enter_context(socket.create_connection((host, int(port))))

        assert _status(http, f"http://{plain.address}/healthz") == 200


def test_stalled_handshakes_free_their_threads(tmp_path: Path) -> None:
    """Peers that stop in the middle of a handshake are dropped after the timeout, for good."""
    ca, ca_file = make_ca(tmp_path)
    flags = (f"--tls-cert={make_leaf(ca, tmp_path / 'leaf.pem')}", "--io-timeout-s=1")
    with (
        running(tmp_path, "--threads=2", *flags) as server,
        caller(ca_file) as pool,
        ExitStack() as stack,
    ):
        host, port = server.address.split(":")
        stalled = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=START_S))
            for _ in range(2)
        ]
        for connection in stalled:
            connection.sendall(b"\x16")
        dropped = [connection.recv(1) for connection in stalled]
        wait_until(lambda: _answers(pool, f"https://{server.address}/healthz"))

        assert dropped == [b"", b""]
        assert not [line for line in server.log if "trace" in line]


def _answers(pool: urllib3.PoolManager, url: str) -> bool:
    """Whether a request succeeds, apart from time-outs on a busy machine."""
    with suppress(urllib3.exceptions.HTTPError):
        return _status(pool, url) == 200
    return False


@dataclass
class Secured:
    """A service with TLS and client certificates, shared by tests that only send requests."""

    address: str
    ca: Pair
    ca_file: Path
    leaf: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The running service."""
    place = tmp_path_factory.mktemp("secured")
    ca, ca_file = make_ca(place)
    leaf = make_leaf(ca, place / "leaf.pem")
    with running(place, f"--tls-cert={leaf}", f"--client-ca={ca_file}") as server:
        yield Secured(server.address, ca, ca_file, leaf)


def test_renewed_certificate_needs_no_restart(secured: Secured) -> None:
    """New connections get the file's new certificate while open ones stay usable."""
    with caller(secured.ca_file) as pool:
        url = f"https://{secured.address}/healthz"
        first = _serial(secured.address, secured.ca_file)
        before = _status(pool, url)
        make_leaf(secured.ca, secured.leaf)

        assert (before, _status(pool, url)) == (200, 200)
        assert _serial(secured.address, secured.ca_file) != first


def _serial(address: str, ca_file: Path) -> object:
    host, port = address.split(":")
    context = ssl.create_default_context(cafile=ca_file)
    with (
        socket.create_connection((host, int(port)), timeout=START_S) as raw,
        context.wrap_socket(raw, server_hostname=host) as secured,
    ):
        return (secured.getpeercert() or {})["serialNumber"]


def test_client_certificates(secured: Secured, tmp_path: Path) -> None:
    """With a client CA, callers need a certificate of it and probes do not."""
    known_leaf = make_leaf(secured.ca, tmp_path / "known.pem")
    stranger_ca, _ = make_ca(tmp_path, "stranger")
    stranger = make_leaf(stranger_ca, tmp_path / "stranger-leaf.pem")
    url = f"https://{secured.address}"
    with caller(secured.ca_file) as anonymous:
        probe = _status(anonymous, f"{url}/healthz")
        refused = anonymous.request("POST", f"{url}/echo", body=b"1", headers=JSON)
    with caller(secured.ca_file, cert_file=str(known_leaf)) as authorized:
        accepted = authorized.request("POST", f"{url}/echo", body=b"1", headers=JSON)
    with (
        caller(secured.ca_file, cert_file=str(stranger)) as other,
        pytest.raises(urllib3.exceptions.HTTPError),
    ):
        other.request("POST", f"{url}/echo", body=b"1", headers=JSON)

    assert (probe, refused.status, accepted.status) == (200, 403, 200)
    assert "certificate" in refused.json()["error"]["message"]


def test_sigterm_drains_first(tmp_path: Path) -> None:
    """After SIGTERM readiness fails, requests are still answered, open ones end, then it exits."""
    gate, later = tmp_path / "gate", tmp_path / "later"
    flags = ("--drain-seconds=60", f"--gate={gate}", f"--later={later}")
    with running(tmp_path, *flags) as server, caller() as pool, ThreadPoolExecutor(1) as thread:
        url = f"http://{server.address}"
        assert _status(pool, f"{url}/readyz") == 200
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: _status(pool, f"{url}/readyz") == 503)
        assert _status(pool, f"{url}/healthz") == 200
        slow = thread.submit(_status, pool, f"{url}/slow")
        wait_until(lambda: "slow begins" in [line["message"] for line in server.log])
        later.touch()
        wait_until(lambda: "it is later" in [line["message"] for line in server.log])
        gate.touch()

        assert slow.result() == 200
        pool.clear()
        assert server.process.wait(START_S) == 0
        assert [line["message"] for line in server.log][-2:] == ["watches ended", "stopped"]


def test_sigint_ends_it_at_once(tmp_path: Path) -> None:
    """Ctrl-C on a terminal does not wait for a drain, the longest of which is a minute."""
    with running(tmp_path, "--drain-seconds=60") as server:
        server.process.send_signal(signal.SIGINT)

        assert server.process.wait(START_S) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's own")
def test_workers_are_replaced_and_die_with_their_master(tmp_path: Path) -> None:
    """A killed worker is replaced; a killed master leaves no worker, not even a stopped one."""
    with running(tmp_path) as server, caller() as pool:
        wait_until(server.workers)
        killed = server.workers()[0]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: server.workers() not in ([], [killed]))
        (worker,) = server.workers()

        assert _status(pool, f"http://{server.address}/healthz") == 200
        os.kill(worker, signal.SIGSTOP)  # it cannot look for itself
        server.process.kill()
        wait_until(lambda: not Path(f"/proc/{worker}").exists())


def test_a_certificate_that_is_none_is_said() -> None:
    """The error is one line that names the setting; nothing is served."""
    settings = EchoSettings(listen="127.0.0.1:0", tls_cert=Path("/nowhere/leaf.pem"))

    with pytest.raises(ServeError, match=r"^--tls-cert /nowhere/leaf\.pem cannot be used: .+$"):
        run(settings, lambda: service(settings))


@pytest.mark.parametrize("setting", ["listen=nonsense", "threads=0"])
def test_a_setting_that_is_none_is_one_clear_line(
    setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It exits with code 2 before anything starts."""
    name, _, value = setting.partition("=")
    with pytest.raises(SystemExit) as ended:
        EchoSettings.from_command_line("", [f"--{setting}"], {})
    (line,) = capsys.readouterr().err.splitlines()

    assert ended.value.code == 2
    assert f"--{name} is '{value}'" in line


def test_an_address_that_is_not_here_is_said() -> None:
    """The address belongs to another machine; the error names the setting."""
    settings = EchoSettings(listen="192.0.2.1:1")

    with pytest.raises(ServeError, match=r"^cannot listen on 192\.0\.2\.1:1: .*--listen$"):
        run(settings, lambda: service(settings))


def test_address_in_use_is_said() -> None:
    """Two servers on one port: the second one names the setting."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = EchoSettings(listen=f"127.0.0.1:{listener.getsockname()[1]}")

        with pytest.raises(ServeError, match=r"^cannot listen on 127.*Address already in use"):
            run(settings, lambda: service(settings))


def test_service_that_cannot_be_built_ends_the_server() -> None:
    """A failing build is logged once and ends the process; it is not tried for ever."""
    done = run_to_end("--listen=127.0.0.1:0", "--broken")

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode != 0
    assert [line["message"] for line in lines].count("service cannot be built") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8443", ("127.0.0.1", 8443)),
        ("[::1]:0", ("::1", 0)),
        (":80", ("0.0.0.0", 80)),  # noqa: S104 - only parsed
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    """An address is host:port, with brackets around IPv6."""
    assert address(text) == expected


@pytest.mark.parametrize("text", ["", "8443", "host:", "host:65536", "::1:80", "a:b:1", "h:-1"])
def test_addresses_that_are_none(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(ValidationError, match=r"such as 0\.0\.0\.0:8443"):
        EchoSettings(listen=text)
