"""Reflectors whose watch brings nothing: docs/decisions/0051."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kube import errors
from kube.api import Stream
from kube.reflector import Reflector
from kube.request import CONFIGMAPS, Request
from lab.fake_api import FakeApi
from tests.kube.items import FaultyWatchApi, put, read


@pytest.fixture
def fake() -> FakeApi:
    """An empty cluster."""
    return FakeApi()


class SilentApi(FaultyWatchApi):
    """Its watches bring nothing for 75 s, and are given up then; it notes how long each was to last."""

    def __init__(self, fake: FakeApi) -> None:
        super().__init__(fake)
        self.now_s = 0.0
        self.asked_s: list[int] = []

    @contextmanager
    def stream(self, watch_request: Request) -> Iterator[Stream]:
        """See `kube.api.Api.stream`."""
        self.asked_s.append(int(dict(watch_request.query)["timeoutSeconds"]))
        if self.mishap:
            raise errors.Unavailable(self.mishap)

        class Silent:
            def __iter__(self) -> Iterator[bytes]:
                return self

            def __next__(silent) -> bytes:  # noqa: N805 - the API is needed, too
                self.now_s += 75.0
                raise errors.Unavailable("read timed out")

            def close(self) -> None:
                pass

        yield Silent()


def test_after_silence_it_lists_again(fake: FakeApi) -> None:
    """A watch that gets no bookmarks is nothing wrong, but what is known gets old: no error, no pause."""
    silent = SilentApi(fake)
    reflector = Reflector(silent, CONFIGMAPS, read, clock_s=lambda: silent.now_s)
    for _ in range(3):
        assert not reflector.follow_once()
        put(fake, f"item-{silent.now_s:.0f}", "1")
    assert reflector.age_s(silent.now_s) == 75.0
    reflector.follow_once()

    assert len(reflector.records()) == 3
    assert (reflector.counts.lists, reflector.counts.errors) == (4, {})


def test_a_watch_after_an_interruption_ends_soon(fake: FakeApi) -> None:
    """So that its bookmark comes while what is known is still fresh."""
    silent = SilentApi(fake)
    silent.mishap = "no connection"
    reflector = Reflector(silent, CONFIGMAPS, read, clock_s=lambda: silent.now_s)
    for silent.now_s in (0.0, 7.0, 20.0, 69.0):
        assert reflector.follow_once()

    first, second, *short = silent.asked_s
    assert min(first, second) >= 240
    assert short == [50, 5]
    assert reflector.counts.lists == 1
