"""The HTTP client of the API server; every request is sent through `Client`.

The client sends and returns raw bytes. It never retries a request, because only the caller knows whether the
request may be repeated. Every request has a time-out. The connection pool of the kubernetes package handles
TLS, proxies and connection reuse. The models of that package are not used: they cost 400 us per pod and drop
unknown fields.
"""

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import urllib3
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException

from kube import errors
from kube.api import Stream
from kube.request import Request

CONNECT_TIMEOUT_S = 5.0
_CHUNK = 1 << 16
_OK = range(200, 300)


class Client:
    """An API server reached over HTTPS."""

    def __init__(self, configuration: Configuration, *, user_agent: str = "edl") -> None:
        """Initializes the client without opening a connection.

        Args:
            configuration: From `kube.config.load`.
            user_agent: Appears in the API server's audit log.
        """
        self._configuration = configuration
        self._pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
        self._base = str(configuration.host).rstrip("/")
        self._user_agent = user_agent
        self._token_lock = threading.Lock()
        self._callers_token = ""

    def with_token(self, token: str) -> "Client":
        """Returns a client that shares this client's connections and sends the token of a caller.

        The configuration must have no credentials of its own (`kube.config.without_credentials`): a client
        certificate would take precedence over the token.
        """
        other = copy.copy(self)
        other._callers_token = token  # noqa: SLF001 - `other` is of the same class
        return other

    def send(self, request: Request) -> bytes:
        """See `kube.api.Api.send`."""
        response = self._open(request)
        try:
            return _body(response, request)
        finally:
            response.release_conn()

    @contextmanager
    def stream(self, request: Request) -> Iterator[Stream]:
        """See `kube.api.Api.stream`."""
        lines = _Lines(self._open(request), request)
        try:
            yield lines
        finally:
            lines.release()

    def close(self) -> None:
        """Closes idle connections."""
        self._pool.clear()

    def _open(self, request: Request) -> urllib3.BaseHTTPResponse:
        try:
            response = self._pool.request(
                request.method,
                self._base + request.target,
                body=request.body or None,
                headers=self._headers(request),
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=request.timeout_s),
                retries=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _no_answer(request, error) from error
        if response.status in _OK:  # redirects are not followed: the token stays with this host
            return response
        try:
            body = _body(response, request)
        finally:
            response.release_conn()
        retry_after = response.headers.get("Retry-After", "")
        raise errors.from_response(response.status, body, request.line, retry_after)

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._user_agent}
        if request.body:
            headers["Content-Type"] = request.content_type
        token = self._token(request)
        if token:
            headers["Authorization"] = str(token).strip()
        return headers

    def _token(self, request: Request) -> object:
        """Returns the current token; if it is due, reads its file or runs its command again."""
        if self._callers_token:
            return f"Bearer {self._callers_token}"
        try:
            with self._token_lock:
                return self._configuration.get_api_key_with_prefix("BearerToken", "authorization")
        except (ConfigException, OSError) as error:
            raise errors.Unauthorized(f"no token: {error}", request=request.line) from error


class _Lines:
    """An iterator over the lines of an HTTP body, as its chunks arrive."""

    def __init__(self, response: urllib3.BaseHTTPResponse, request: Request) -> None:
        self._response = response
        self._request = request
        self._closed = False
        self._lines = self._split()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._lines)
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as error:
            # After another thread has called `close`, the library may raise various errors.
            if self._closed:
                raise StopIteration from error
            raise _no_answer(self._request, error) from error

    def close(self) -> None:
        """Wakes a blocked reader; the connection is not used again."""
        self._closed = True
        with suppress(ValueError, OSError, RuntimeError):  # the connection may be closed already
            self._response.shutdown()

    def release(self) -> None:
        """Closes the response and its connection; only the reading thread may call this."""
        self.close()
        self._response.close()

    def _split(self) -> Iterator[bytes]:
        partial_line = b""
        for chunk in self._response.stream(_CHUNK):
            *lines, partial_line = (partial_line + chunk).split(b"\n")
            yield from filter(None, lines)


def _body(response: urllib3.BaseHTTPResponse, request: Request) -> bytes:
    try:
        return response.read()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _no_answer(request, error) from error


def _no_answer(request: Request, error: Exception) -> errors.Unavailable:
    return errors.Unavailable(f"{type(error).__name__}: {error}", request=request.line)
