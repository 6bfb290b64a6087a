"""An `Api` that sends requests only while this process leads, checked for each request.

A round may start as leader and continue after leadership was lost: the process was paused for a
while with queued writes, and another process leads by now. Both together would create too many
trainers.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from kube import errors
from kube.api import Api, Stream
from kube.request import Request


class LeaderOnlyApi:
    """An `Api` that refuses requests while this process does not lead."""

    def __init__(self, api: Api, leads: Callable[[], bool]) -> None:
        """Starts nothing.

        Args:
            api: Receives the requests.
            leads: Whether this process is the leader now.
        """
        self._api = api
        self._leads = leads

    def send(self, request: Request) -> bytes:
        """Sends a request; returns the body of the answer.

        Raises:
            KubeError: the request failed, or was not sent because another process leads.
        """
        self._check(request)
        return self._api.send(request)

    def stream(self, request: Request) -> AbstractContextManager[Stream]:
        """Opens a watch.

        Raises:
            KubeError: as `send`.
        """
        self._check(request)
        return self._api.stream(request)

    def _check(self, request: Request) -> None:
        if not self._leads():
            raise errors.Unavailable("not sent: this process does not lead", request=request.line)
