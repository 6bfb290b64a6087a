"""Lets requests through only while this process leads, and asks at the moment of each.

A round may begin as leader and go on as none: the process was stopped for a while, with a queue
of writes in its hands, and another leads by now. Trainers made then would be more than wanted.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from kube import errors
from kube.client import Api, Stream
from kube.request import Request


class Fence:
    """An `Api` for the leader's writes."""

    def __init__(self, api: Api, leads: Callable[[], bool]) -> None:
        """Starts nothing.

        Args:
            api: Where requests go.
            leads: Whether this process may act now.
        """
        self._api = api
        self._leads = leads

    def send(self, request: Request) -> bytes:
        """The answer's body.

        Raises:
            KubeError: the request failed, or was not sent because another leads by now.
        """
        self._check(request)
        return self._api.send(request)

    def stream(self, request: Request) -> AbstractContextManager[Stream]:
        """A watch's lines.

        Raises:
            KubeError: as `send`.
        """
        self._check(request)
        return self._api.stream(request)

    def _check(self, request: Request) -> None:
        if not self._leads():
            raise errors.Unavailable("not sent: this process does not lead", request=request.line)
