"""A small HTTPS server with a given response, for tests that need a real socket."""

import base64
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from runtime import certs, clock
from tests.support.kubeconfigs import write_kubeconfig

Answer = Callable[[BaseHTTPRequestHandler], None]


class Handler(BaseHTTPRequestHandler):
    """A handler that passes every request to the server's `answer`."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    """Ends a hang: no client of a test is silent for so long."""

    def _answer(self) -> None:
        answer = self.server.answer  # type: ignore[attr-defined] # set by `serving`
        answer(self)

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _answer  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Logs nothing."""


class QuietServer(ThreadingHTTPServer):
    """A server that prints no traceback for broken connections, which some tests cause."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs nothing."""


def reply(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    """Sends a complete response."""
    handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def begin_stream(handler: BaseHTTPRequestHandler) -> None:
    """The head of a chunked answer."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()


def chunk(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    """Sends one chunk; an empty one ends the response."""
    handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    handler.wfile.flush()


@contextmanager
def serving(directory: Path, answer: Answer) -> Iterator[Path]:
    """Serves `answer` on 127.0.0.1; gives a kubeconfig for it with the token "sesame"."""
    ca = certs.new_ca("test", clock.now())
    leaf = certs.issue(ca, "server", clock.now(), hosts=("127.0.0.1",))
    (directory / "leaf.pem").write_bytes(leaf.cert + leaf.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "leaf.pem")
    server = QuietServer(("127.0.0.1", 0), Handler)
    server.answer = answer  # type: ignore[attr-defined] # read by Handler
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield kubeconfig(directory / "kubeconfig", server.server_address[1], ca.cert)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def kubeconfig(path: Path, port: int, ca: bytes) -> Path:
    """Writes a kubeconfig with one context, "test"."""
    text = base64.b64encode(ca).decode()
    return write_kubeconfig(path, f"https://127.0.0.1:{port}", text, "sesame")
