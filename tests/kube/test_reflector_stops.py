"""Reflectors that are stopped while they start, list or connect."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kube import errors, request
from kube.api import Stream
from kube.reflector import Reflector
from kube.request import CONFIGMAPS, Request
from lab.fake_api import FakeApi
from tests.kube.items import FaultyWatchApi, put, read


@pytest.fixture
def fake() -> FakeApi:
    """An empty cluster."""
    return FakeApi()


def test_a_stop_before_the_start_is_fine(fake: FakeApi) -> None:
    """It sends no request."""
    reflector = Reflector(fake, CONFIGMAPS, read)
    reflector.stop()
    reflector.start()
    reflector.stop()

    assert reflector.counts.lists == 0


def test_a_stop_between_two_pages_is_heard(fake: FakeApi) -> None:
    """A partial list is discarded; a failure caused by the stop is not an error."""

    class Stopping(FaultyWatchApi):
        def send(self, api_request: Request) -> bytes:
            reflector.request_stop()
            if "/pods" in api_request.path:
                raise errors.Unavailable("closed")
            return super().send(api_request)

    for number in range(request.PAGE + 1):
        put(fake, f"c{number}", "1")
    reflector: Reflector[Any] = Reflector(Stopping(fake), CONFIGMAPS, read)
    reflector.follow_once()
    assert (reflector.synced, reflector.records()) == (False, ())

    reflector = Reflector(Stopping(fake), request.PODS, read)
    reflector.follow_once()
    assert reflector.counts.errors == {}


def test_a_stop_while_connecting_is_heard(fake: FakeApi) -> None:
    """No event of the watch is processed."""

    class Stopping(FaultyWatchApi):
        @contextmanager
        def stream(self, watch_request: Request) -> Iterator[Stream]:
            reflector.request_stop()
            put(fake, "a", "1")
            with super().stream(watch_request) as stream:
                yield stream

    reflector = Reflector(Stopping(fake), CONFIGMAPS, read)
    reflector.follow_once()

    assert reflector.counts.events == 0
