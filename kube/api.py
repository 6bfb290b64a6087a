"""The interface of an API server. Pure: the client and the fake API server implement it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from kube.request import Request


class Stream(Iterator[bytes], Protocol):
    """The lines of a watch. Ends when the server ends the watch, or after `close`."""

    def close(self) -> None:
        """Ends the iteration at once; may be called from any thread, and more than once."""


class Api(Protocol):
    """The API server, as components use it; see `kube.client.Client` and `lab.fake_api.FakeApi`.

    Both methods may be called from several threads at once.
    """

    def send(self, request: Request) -> bytes:
        """Sends a request; returns the response body.

        Raises:
            KubeError: The response is not 2xx, or there is no response.
        """

    def stream(self, request: Request) -> AbstractContextManager[Stream]:
        """Opens a watch; yields its lines as they arrive.

        Raises:
            KubeError: On entering, if the watch is refused; while iterating, if it breaks.
        """
