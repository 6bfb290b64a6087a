"""The one seam: everything that leaves for the API server leaves through `Client`.

Raw bytes in both directions; no retries (callers know what may be repeated), every timeout
set. The pool of the kubernetes package does TLS, proxies and connection reuse; its models,
which cost 400 us per pod and lose unknown fields, are not used.
"""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

import urllib3
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException

from kube import errors
from kube.request import Request

CONNECT_TIMEOUT_S = 5.0
_CHUNK = 1 << 16
_OK = range(200, 300)


class Stream(Iterator[bytes], Protocol):
    """Lines of a watch. Ends when the server ends it or after `close`."""

    def close(self) -> None:
        """Ends the iteration at once; safe from any thread, any number of times."""


class Api(Protocol):
    """What the rooms need of an API server: `Client` and `kube.fake.FakeApi` are ones.

    Both methods are safe to call from several threads at once.
    """

    def send(self, request: Request) -> bytes:
        """The answer's body.

        Raises:
            KubeError: any answer other than 2xx, or none.
        """

    def stream(self, request: Request) -> AbstractContextManager[Stream]:
        """A watch's lines, as they come.

        Raises:
            KubeError: on entering: refused; while iterating: broken off.
        """


class Client:
    """The API server over HTTPS."""

    def __init__(self, configuration: Configuration, *, user_agent: str = "edl") -> None:
        """Opens no connection yet.

        Args:
            configuration: From `kube.config.load`.
            user_agent: Shown in the API server's audit log.
        """
        self._configuration = configuration
        self._pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
        self._base = str(configuration.host).rstrip("/")
        self._user_agent = user_agent
        self._token_lock = threading.Lock()

    def send(self, request: Request) -> bytes:
        """See `Api.send`."""
        response = self._open(request)
        try:
            return _body(response, request)
        finally:
            response.release_conn()

    @contextmanager
    def stream(self, request: Request) -> Iterator[Stream]:
        """See `Api.stream`."""
        lines = _Lines(self._open(request), request)
        try:
            yield lines
        finally:
            lines.release()

    def close(self) -> None:
        """Drops idle connections."""
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
        if response.status in _OK:  # a redirect is none: the token stays with this host
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
        """The token as it is now: its file is read again, or its command run, when due."""
        try:
            with self._token_lock:
                return self._configuration.get_api_key_with_prefix("BearerToken", "authorization")
        except (ConfigException, OSError) as error:
            raise errors.Unauthorized(f"no token: {error}", request=request.line) from error


class _Lines:
    """Splits an HTTP body into lines as its chunks arrive."""

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
            # Once closed from another thread, the library may trip over what it finds.
            if self._closed:
                raise StopIteration from error
            raise _no_answer(self._request, error) from error

    def close(self) -> None:
        """Wakes a reader that is blocked in it; the connection is not used again."""
        self._closed = True
        with suppress(ValueError, OSError, RuntimeError):  # not connected any more
            self._response.shutdown()

    def release(self) -> None:
        """Gives everything back; only for the thread that reads."""
        self.close()
        self._response.close()

    def _split(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self._response.stream(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from filter(None, lines)


def _body(response: urllib3.BaseHTTPResponse, request: Request) -> bytes:
    try:
        return response.read()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _no_answer(request, error) from error


def _no_answer(request: Request, error: Exception) -> errors.Unavailable:
    return errors.Unavailable(f"{type(error).__name__}: {error}", request=request.line)
