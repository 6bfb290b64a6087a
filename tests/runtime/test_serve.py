import json
import signal
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import urllib3
from pydantic import ValidationError

from runtime.certs import Pair
from runtime.serve import ServeError
from runtime.settings import address
from runtime.supervisor import run
from tests.runtime.servers import (
    JSON,
    START_S,
    EchoSettings,
    Running,
    caller,
    echo_status,
    get_status,
    make_ca,
    make_leaf,
    run_to_end,
    running,
    service,
    wait_until,
)

pytestmark = pytest.mark.timeout(180)  # starts real processes, which takes a busy machine seconds


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


def test_probes_and_metrics(plain: Running, http: urllib3.PoolManager) -> None:
    """/healthz, /readyz and /metrics answer on a port of their own."""
    ready = http.request("GET", f"http://{plain.probes}/readyz")
    scrape = http.request("GET", f"http://{plain.probes}/metrics")

    assert get_status(http, f"http://{plain.probes}/healthz") == 200
    assert ready.json() == {"ready": True, "draining": False, "answer": 42}
    assert b"process_cpu_seconds_total" in scrape.data
    assert scrape.headers["Content-Type"].startswith("text/plain; version=0.0.4")


def test_each_port_serves_its_own_routes(plain: Running, http: urllib3.PoolManager) -> None:
    """The API's callers get no metrics, the port of the probes no API; both say where."""
    probe = http.request("GET", f"http://{plain.address}/healthz")
    api = http.request("POST", f"http://{plain.probes}/echo", body=b"1", headers=JSON)

    assert (probe.status, api.status) == (404, 404)
    assert probe.json()["error"]["message"].endswith("are served on --probe-listen")
    assert api.json()["error"]["message"].endswith("are served on --listen")


def test_one_port_may_serve_everything(tmp_path: Path, http: urllib3.PoolManager) -> None:
    """As the reconciler's, which has nothing but probes and metrics."""
    with running(tmp_path, "--one-port") as server:
        answer = http.request("POST", f"http://{server.address}/echo", body=b"1", headers=JSON)

        assert server.probes == server.address
        assert answer.status == 200
        assert get_status(http, f"http://{server.address}/healthz") == 200


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
    assert get_status(http, f"http://{plain.probes}/healthz") == 200


def test_chunked_body_is_capped_too(plain: Running, http: urllib3.PoolManager) -> None:
    """Leaving out Content-Length does not get a longer body in, or a cut one through."""
    parts = iter([b'{"a": "', b"x" * 5000, b'"}'])

    answer = http.request("POST", f"http://{plain.address}/echo", body=parts, headers=JSON)

    assert answer.status == 413


def test_long_request_line_is_refused(plain: Running, http: urllib3.PoolManager) -> None:
    """A request line over the limit gets 400, not memory."""
    answer = http.request("GET", f"http://{plain.address}/{'x' * 5000}")

    assert answer.status == 400


def test_what_is_not_http_is_counted(plain: Running, http: urllib3.PoolManager) -> None:
    """Strangers do not fill the log: one line sums up a minute, without a trace."""
    host, port = plain.address.split(":")
    for garbage in (b"\x16\x03\x01", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n:\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=START_S) as link:
            link.sendall(garbage + b"\r\n\r\n")
            while link.recv(4096):
                pass
    scrape = http.request("GET", f"http://{plain.probes}/metrics").data.decode()
    counts = [line for line in scrape.splitlines() if 'reason="malformed"' in line]

    assert [float(line.rsplit(" ", 1)[1]) >= 3 for line in counts] == [True]
    assert sum(line["message"] == "connections dropped" for line in plain.log) == 1
    assert not [line for line in plain.log if "400" in line.get("trace", "")]


@dataclass
class Secured:
    """A service with TLS and client certificates, shared by tests that only send requests."""

    address: str
    probes: str
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
        yield Secured(server.address, server.probes, ca, ca_file, leaf)


def test_renewed_certificate_needs_no_restart(tmp_path: Path) -> None:
    """New connections get the file's new certificate while open ones stay usable."""
    ca, ca_file = make_ca(tmp_path)
    leaf = make_leaf(ca, tmp_path / "leaf.pem")
    with running(tmp_path, f"--tls-cert={leaf}") as server, caller(ca_file) as pool:
        first = _serial(server.address, ca_file)
        before = echo_status(pool, f"https://{server.address}")
        make_leaf(ca, leaf)

        assert (before, echo_status(pool, f"https://{server.address}")) == (200, 200)
        assert _serial(server.address, ca_file) != first


def _serial(address: str, ca_file: Path) -> object:
    host, port = address.split(":")
    context = ssl.create_default_context(cafile=ca_file)
    with (
        socket.create_connection((host, int(port)), timeout=START_S) as raw,
        context.wrap_socket(raw, server_hostname=host) as secured,
    ):
        return (secured.getpeercert() or {})["serialNumber"]


def test_without_a_certificate_of_the_client_ca_nobody_reaches_the_api(
    secured: Secured, tmp_path: Path
) -> None:
    """The handshake fails, so that no thread and no application hears of them."""
    known_leaf = make_leaf(secured.ca, tmp_path / "known.pem")
    stranger_ca, _ = make_ca(tmp_path, "stranger")
    stranger = make_leaf(stranger_ca, tmp_path / "stranger-leaf.pem")
    with caller(secured.ca_file, cert_file=str(known_leaf)) as authorized:
        accepted = echo_status(authorized, f"https://{secured.address}")
        shown = authorized.request("GET", f"https://{secured.address}/peer").json()
    for certificate in ({}, {"cert_file": str(stranger)}):
        with (
            caller(secured.ca_file, **certificate) as other,
            pytest.raises(urllib3.exceptions.HTTPError),
        ):
            echo_status(other, f"https://{secured.address}")

    with caller() as kubelet:
        scrape = kubelet.request("GET", f"http://{secured.probes}/metrics").data.decode()
    assert accepted == 200
    assert shown["notAfter"].endswith("GMT")
    assert 'edl_echo_connections_dropped_total{reason="handshake"} 2.0' in scrape


def test_sigterm_drains_first(tmp_path: Path) -> None:
    """After SIGTERM readiness fails, requests are still answered, each the last one of its connection; then it exits."""
    gate, later = tmp_path / "gate", tmp_path / "later"
    flags = ("--drain-seconds=60", f"--gate={gate}", f"--later={later}")
    with running(tmp_path, *flags) as server, caller() as pool, ThreadPoolExecutor(1) as thread:
        probes = f"http://{server.probes}"
        assert get_status(pool, f"{probes}/readyz") == 200
        kept = pool.request("GET", f"http://{server.address}/healthz")
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: get_status(pool, f"{probes}/readyz") == 503)
        assert get_status(pool, f"{probes}/healthz") == 200
        slow = thread.submit(pool.request, "GET", f"http://{server.address}/slow")
        wait_until(lambda: "slow begins" in [line["message"] for line in server.log])
        later.touch()
        wait_until(lambda: "it is later" in [line["message"] for line in server.log])
        gate.touch()

        assert "Connection" not in kept.headers
        assert (slow.result().status, slow.result().headers["Connection"]) == (200, "close")
        pool.clear()
        assert server.process.wait(START_S) == 0
        assert [line["message"] for line in server.log][-2:] == ["watches ended", "stopped"]


@pytest.mark.soak  # `make test` has SIGTERM
def test_sigint_ends_it_at_once(tmp_path: Path) -> None:
    """Ctrl-C on a terminal does not wait for a drain, the longest of which is a minute."""
    with running(tmp_path, "--drain-seconds=60") as server:
        server.process.send_signal(signal.SIGINT)

        assert server.process.wait(START_S) == 0


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


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        (EchoSettings(client_ca=Path("ca.pem")), "--tls-cert"),
        (
            EchoSettings(client_ca=Path("ca.pem"), tls_cert=Path("leaf.pem"), probe_listen=None),
            "--probe-listen",
        ),
    ],
)
def test_a_client_ca_that_cannot_work_is_said(settings: EchoSettings, missing: str) -> None:
    """Rather than serving everybody, or letting a kubelet kill the server."""
    with pytest.raises(ServeError, match=f"^--client-ca needs {missing}: "):
        run(settings, lambda: service(settings))


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


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--broken", "service cannot be built"),
        pytest.param("--unstartable", "service cannot be started", marks=pytest.mark.soak),
    ],
)
def test_service_that_fails_at_first_ends_the_server(flag: str, message: str) -> None:
    """The failure is logged once and ends the process; it is not tried for ever."""
    done = run_to_end("--listen=127.0.0.1:0", "--probe-listen=127.0.0.1:0", flag)

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1
    assert [line["message"] for line in lines].count(message) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8443", ("127.0.0.1", 8443)),
        ("[::1]:0", ("::1", 0)),
        (":80", ("", 80)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    """An address is host:port, with brackets around IPv6."""
    assert address(text) == expected


@pytest.mark.parametrize("text", ["", "8443", "host:", "host:65536", "::1:80", "a:b:1", "h:-1"])
def test_addresses_that_are_none(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(ValidationError, match=r"such as 127\.0\.0\.1:8443"):
        EchoSettings(listen=text)
