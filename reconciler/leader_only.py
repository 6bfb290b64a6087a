"""The control loop's `Api`, which sends requests only while this process leads, with short time-outs.

A tick may continue after the process has lost leadership: for example, the process was paused while writes were
queued, and another process leads by now. Both together would create too many trainers, so leadership is checked
before each request.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from kube import errors
from kube.api import Api, Stream
from kube.request import Request

TIMEOUT_S = 10.0
"""Longest time to wait for the API server, because a tick waits for its requests."""


class LeaderOnlyApi:
    """An `Api` that refuses requests while this process does not lead."""

    def __init__(
        self, api: Api, leads: Callable[[], bool], on_end: Callable[[], None] = lambda: None
    ) -> None:
        """Initializes the API client.

        Args:
            api: Sends the requests.
            leads: Returns whether this process is the leader.
            on_end: Called on any thread when a request of `send` has succeeded or failed.
        """
        self._api = api
        self._leads = leads
        self._on_end = on_end

    def send(self, request: Request) -> bytes:
        """Sends a request with a time-out of at most `TIMEOUT_S`; returns the body of the answer.

        Raises:
            KubeError: The request failed, or was not sent because another process leads.
        """
        self._check(request)
        try:
            return self._api.send(replace(request, timeout_s=min(request.timeout_s, TIMEOUT_S)))
        finally:
            self._on_end()

    def stream(self, request: Request) -> AbstractContextManager[Stream]:
        """Opens a watch.

        Raises:
            KubeError: As for `send`.
        """
        self._check(request)
        return self._api.stream(request)

    def _check(self, request: Request) -> None:
        if not self._leads():
            raise errors.Unavailable("not sent: this process does not lead", request=request.line)
