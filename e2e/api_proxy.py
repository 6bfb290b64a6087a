"""A proxy between one of EDL's servers and the API server, which has the faults that a test asks for.

    with api_proxy(cluster, kubeconfig, directory) as proxy:
        control_plane.reach_through("reconciler", proxy.url)
        proxy.fault = Fault(status=429)

It serves with the API server's own certificate and calls it with the server's, so both sides see what
they always see. Requests of a watch are streamed.
"""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from e2e.cluster import identity

_UPSTREAM_S = 600.0
_CHUNK = 1 << 16
_CONNECTION_HEADERS = {"connection", "host", "transfer-encoding", "content-length"}


@dataclass(frozen=True, slots=True)
class Fault:
    """The kinds of faults of requests.

    Attributes:
        status: Every second request gets this answer in place of the API server's; 0 for none.
        delay_s: Every answer comes this much later.
    """

    status: int = 0
    delay_s: float = 0.0


class ApiProxy:
    """The proxy of one identity; attributes may be set at any time, from any thread."""

    def __init__(self, upstream: str, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        """Starts to serve on a free port."""
        self.fault = Fault()
        self.refused = 0
        """Requests that were answered here."""
        self._upstream = urlsplit(upstream).netloc
        self._client = client
        self._lock = threading.Lock()
        self._count = 0
        self._generation = 0
        self._muted_before = 0
        self._http = _Server(server, self)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address for a kubeconfig."""
        return f"https://127.0.0.1:{self._http.server_address[1]}"

    def mute(self) -> None:
        """Watches that are open now bring nothing more, and stay open."""
        with self._lock:
            self._generation += 1
            self._muted_before = self._generation

    def stop(self) -> None:
        """Ends it, without waiting for watches."""
        self._http.shutdown()
        self._http.server_close()

    def refuses(self) -> int:
        """Returns the status to refuse the next request with; 0 to let it through. Delays it where asked."""
        fault = self.fault
        time.sleep(fault.delay_s)
        with self._lock:
            self._count += 1
            is_refused = bool(fault.status) and self._count % 2 == 0
            self.refused += is_refused
        return fault.status if is_refused else 0

    def forward(self, handler: BaseHTTPRequestHandler) -> None:
        """Sends a request on, and its answer back."""
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length) if length else None
        headers = {
            name: value
            for name, value in handler.headers.items()
            if name.lower() not in _CONNECTION_HEADERS
        }
        generation = self._generation
        connection = HTTPSConnection(self._upstream, context=self._client, timeout=_UPSTREAM_S)
        try:
            connection.request(handler.command, handler.path, body, headers)
            answer = connection.getresponse()
            handler.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _CONNECTION_HEADERS:
                    handler.send_header(name, value)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            self._copy(answer, handler, generation)
        finally:
            connection.close()

    def _copy(self, answer: HTTPResponse, handler: BaseHTTPRequestHandler, generation: int) -> None:
        while chunk := answer.read1(_CHUNK):
            if generation >= self._muted_before:
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if generation >= self._muted_before:
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, context: ssl.SSLContext, proxy: ApiProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._context = context
        self.proxy = proxy

    def finish_request(self, request: object, client_address: object) -> None:
        """In the connection's own thread, so that one handshake does not wait for another."""
        with suppress(OSError, HTTPException):
            connection = self._context.wrap_socket(request, server_side=True)  # type: ignore[arg-type]
            with connection:
                _Handler(connection, client_address, self)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _serve(self) -> None:
        proxy = self.server.proxy
        status = proxy.refuses()
        if not status:
            proxy.forward(self)
            return
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        text = json.dumps({"kind": "Status", "message": "played fault", "code": status}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - names of http.server

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def api_proxy(kubeconfig: Path, serving: tuple[Path, Path], directory: Path) -> Iterator[ApiProxy]:
    """The proxy of a kubeconfig's user, until the end of the block.

    Args:
        kubeconfig: One of `e2e.cluster`, with certificates inside it.
        serving: Certificate and key of the API server.
        directory: For the user's certificate and key.
    """
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    paths = {
        name: identity.write_secret(
            directory / f"{kubeconfig.name}.{name}", base64.b64decode(user[f"client-{field}-data"])
        )
        for name, field in (("crt", "certificate"), ("key", "key"))
    }
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*serving)
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    client = ssl.create_default_context(cadata=ca)
    client.load_cert_chain(paths["crt"], paths["key"])
    proxy = ApiProxy(cluster["server"], server, client)
    try:
        yield proxy
    finally:
        proxy.stop()
