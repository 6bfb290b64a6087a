"""The client against a real TLS server."""

import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import orjson
import pytest

from kube import config, errors, request
from kube.client import Client
from kube.reflector import Reflector
from kube.request import PODS
from tests.kube.https_server import Answer, begin_stream, chunk, reply, serving

Connect = Callable[[Answer], Client]
LIMIT_S = 60.0
"""Ends a hang, and nothing else."""


def wait_for_blocked_read(thread: threading.Thread) -> None:
    """Returns once the thread stands in a read of TLS; the test's timeout ends a hang."""
    frames = sys._current_frames  # noqa: SLF001 - the only view of where another thread stands
    while (frame := frames().get(thread.ident or 0)) is None or (
        frame.f_code.co_filename != ssl.__file__
    ):
        time.sleep(0.002)


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    """A client of a server with a given response."""
    with ExitStack() as stack:

        def start(answer: Answer) -> Client:
            server: AbstractContextManager[Path] = serving(tmp_path, answer)
            client = Client(config.load(stack.enter_context(server)), user_agent="edl-test")
            stack.callback(client.close)
            return client

        yield start


def test_a_request_arrives_as_it_is(connect: Connect) -> None:
    """Method, target, body, content type, token and name."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        body = handler.rfile.read(int(headers.pop("content-length")))
        handler.headers.replace_header("Content-Length", "0")
        line = f"{handler.command} {handler.path}"
        reply(handler, orjson.dumps({"line": line, "body": body.decode(), **headers}))

    patch_request = request.merge_patch(PODS, "a", "b", {"x": 1}, subresource="status")
    received = orjson.loads(connect(answer).send(patch_request))

    assert received["line"] == "PATCH /api/v1/namespaces/a/pods/b/status"
    assert received["body"] == '{"x":1}'
    assert received["content-type"] == "application/merge-patch+json"
    assert received["authorization"].lower() == "bearer sesame"
    assert received["user-agent"] == "edl-test"


def test_a_caller_is_who_calls(tmp_path: Path) -> None:
    """Requests with a caller's token have none of the configuration's credentials; one with both stays apart."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, handler.headers.get("Authorization", "none").encode())

    with serving(tmp_path, answer) as kubeconfig:
        loaded = config.load(kubeconfig)
        loaded.cert_file, loaded.username = str(kubeconfig), "admin"
        nobody = config.without_credentials(loaded)
        client = Client(nobody)
        answers = [
            api.send(request.get(PODS, "a", "b"))
            for api in (client, client.with_token("mine"), client.with_token("yours"), client)
        ]
        client.close()

    assert answers == [b"none", b"Bearer mine", b"Bearer yours", b"none"]
    assert (nobody.cert_file, nobody.username) == (None, None)
    assert (nobody.host, nobody.ssl_ca_cert) == (loaded.host, loaded.ssl_ca_cert)


def test_connections_are_used_again(connect: Connect) -> None:
    """Sequential requests use one connection."""
    ports = set()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        ports.add(handler.client_address[1])
        reply(handler, b"{}")

    client = connect(answer)
    for _ in range(3):
        client.send(request.list_page(PODS))

    assert len(ports) == 1


def test_an_error_answer_is_an_error(connect: Connect) -> None:
    """Its Status and Retry-After are read, for requests and for watches."""
    status = orjson.dumps({"kind": "Status", "reason": "TooManyRequests", "message": "slow down"})

    def answer(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, status, 429, Retry_After="3")

    client = connect(answer)
    with pytest.raises(errors.TooManyRequests) as caught:
        client.send(request.list_page(PODS))
    assert caught.value.retry_after_s == 3
    assert str(caught.value) == "GET /api/v1/pods: 429: slow down"
    with pytest.raises(errors.TooManyRequests), client.stream(request.list_page(PODS)):
        pass


def test_a_redirect_is_not_followed(connect: Connect) -> None:
    """The token must not go to another host."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, b"", 302, Location="https://127.0.0.1:1/")

    with pytest.raises(errors.KubeError) as caught:
        connect(answer).send(request.list_page(PODS))
    assert caught.value.status == 302


def test_silence_is_unavailable_after_the_timeout(connect: Connect) -> None:
    """No response arrives before the timeout."""
    done = threading.Event()

    def answer(_handler: BaseHTTPRequestHandler) -> None:
        done.wait(LIMIT_S)

    client = connect(answer)
    try:
        with pytest.raises(errors.Unavailable, match="imed out"):
            client.send(replace(request.list_page(PODS), timeout_s=0.05))
    finally:
        done.set()


def test_a_token_that_cannot_be_read_is_unauthorized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mounted file is gone: an API error like any other, before anything is sent."""
    with serving(tmp_path, lambda handler: reply(handler, b"")) as kubeconfig:
        configuration = config.load(kubeconfig)

    def fail(_configuration: object) -> None:
        raise FileNotFoundError("token")

    monkeypatch.setattr(configuration, "refresh_api_key_hook", fail)
    with pytest.raises(errors.Unauthorized, match="no token"):
        Client(configuration).send(request.list_page(PODS))


def test_a_client_certificate_needs_no_token(tmp_path: Path) -> None:
    """No Authorization header then."""
    authorizations: list[str | None] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        authorizations.append(handler.headers.get("Authorization"))
        reply(handler, b"{}")

    with serving(tmp_path, answer) as kubeconfig:
        configuration = config.load(kubeconfig)
        configuration.api_key.clear()
        configuration.refresh_api_key_hook = None
        client = Client(configuration)
        client.send(request.list_page(PODS))
        client.close()

    assert authorizations == [None]


def test_nobody_there_is_unavailable(tmp_path: Path) -> None:
    """A refused connection; the cause is chained."""
    with serving(tmp_path, lambda handler: reply(handler, b"")) as kubeconfig:
        client = Client(config.load(kubeconfig))
    with pytest.raises(errors.Unavailable) as caught:
        client.send(request.list_page(PODS))

    assert caught.value.status == 0
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_that_breaks_off_is_unavailable(connect: Connect, status: int) -> None:
    """The body is shorter than announced."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"{")
        handler.close_connection = True

    with pytest.raises(errors.Unavailable):
        connect(answer).send(request.list_page(PODS))


def test_lines_come_as_they_are_sent(connect: Connect) -> None:
    """Lines are independent of chunks, and arrive before the response ends."""
    first_line_read = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        begin_stream(handler)
        chunk(handler, b"one\ntw")
        first_line_read.wait(LIMIT_S)
        chunk(handler, b"o\n\nthree\nrest")
        chunk(handler, b"")

    with connect(answer).stream(request.list_page(PODS)) as stream:
        assert next(stream) == b"one"
        first_line_read.set()
        assert list(stream) == [b"two", b"three"]


def test_a_stream_that_breaks_is_unavailable(connect: Connect) -> None:
    """The connection is closed in the middle."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        begin_stream(handler)
        chunk(handler, b"one\n")
        handler.close_connection = True

    with connect(answer).stream(request.list_page(PODS)) as stream:
        assert next(stream) == b"one"
        with pytest.raises(errors.Unavailable):
            next(stream)


def test_a_stream_can_be_closed_from_another_thread(connect: Connect) -> None:
    """The reader wakes before the server sends anything more, and sees a regular end."""
    done, reading = threading.Event(), threading.Event()
    lines: list[bytes] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        begin_stream(handler)
        chunk(handler, b"one\n")
        done.wait(2 * LIMIT_S)

    patient = replace(request.list_page(PODS), timeout_s=3 * LIMIT_S)
    with connect(answer).stream(patient) as stream:

        def read() -> None:
            for line in stream:
                lines.append(line)
                reading.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert reading.wait(LIMIT_S)
        wait_for_blocked_read(reader)
        stream.close()
        stream.close()
        reader.join(LIMIT_S)
        woken = not reader.is_alive()
        done.set()
        reader.join()

    assert woken
    assert lines == [b"one"]


def test_a_reflector_stops_promptly_over_tls(connect: Connect) -> None:
    """The thread ends before the server sends anything."""
    done = threading.Event()
    page = {"metadata": {"resourceVersion": "5"}, "items": []}

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "watch=" not in handler.path:
            reply(handler, orjson.dumps(page))
            return
        begin_stream(handler)
        done.wait(2 * LIMIT_S)

    reflector = Reflector(connect(answer), PODS, str)
    reflector.start()
    try:
        (watching,) = (t for t in threading.enumerate() if t.name == "watch-pods")
        while reflector.counts.watches == 0:
            time.sleep(0.002)
        wait_for_blocked_read(watching)
        assert watching.daemon  # a process that ends does not wait for it
        reflector.stop()
        watching.join(LIMIT_S)
        assert not watching.is_alive()
    finally:
        done.set()
