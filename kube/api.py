"""The interface of an API server. Pure: the client and the fake API server implement it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from kube.request import Request


class Stream(Iterator[bytes], Protocol):
    """The lines of a watch. Ends when the server ends the watch, or after `close`."""

    def close(self) -> None:
        """Ends the iteration at once; safe from any thread, any number of times."""


class Api(Protocol):
    """The interface of an API server that components use; see `kube.client.Client` and `lab.fake_api.FakeApi`.

    Both methods are safe to call from several threads at once.
    """

    def send(self, request: Request) -> bytes:
        """Sends a request; returns the response body.

        Raises:
            KubeError: any response other than 2xx, or no response.
        """

    def stream(self, request: Request) -> AbstractContextManager[Stream]:
        """Opens a watch; yields its lines as they arrive.

        Raises:
            KubeError: on entering, if the watch is refused; while iterating, if it breaks.
        """
