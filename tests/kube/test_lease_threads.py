"""Leader election in threads: tries in time, handing over, and stops that wait for nothing."""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import SimpleNamespace

import pytest

from kube import errors
from kube.api import Stream
from kube.lease import Elector
from kube.request import Request
from lab.fake_api import FakeApi

LIMIT_S = 60.0
"""Ends a hang, and nothing else."""


def test_tries_come_in_time(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader renews every two seconds; candidates try with a little more, random delay."""
    pauses: list[float] = []

    class Recording(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            if len(pauses) == 20:
                self.set()
            return True

    with monkeypatch.context() as patch:
        thread = SimpleNamespace(Event=Recording, Thread=threading.Thread)
        patch.setattr("kube.lease.threading", thread)
        leads, waits = (Elector(fake, "n", "l", name) for name in ("a", "b"))
    recorded: list[list[float]] = []
    for candidate in (leads, waits):
        candidate.start()
        wait_until_ended()
        recorded.append(pauses.copy())
        pauses.clear()

    assert recorded[0] == [2.0] * 20
    assert all(2.0 <= pause_s <= 2.4 for pause_s in recorded[1])
    assert len(set(recorded[1])) > 1


@pytest.fixture
def threads(fake: FakeApi) -> Iterator[tuple[Elector, Elector]]:
    """Two electors with short times."""
    both = tuple(
        Elector(fake, "n", "l", name, retry_s=0.02, renew_s=0.5, lease_s=1.0) for name in "ab"
    )
    yield both[0], both[1]
    for candidate in both:
        candidate.stop()


def test_threads_hand_over(threads: tuple[Elector, Elector]) -> None:
    """One leads; after its stop the other leads, and no thread remains."""
    first, second = threads
    first.start()
    wait_until_leader(first)
    second.start()
    first.stop()
    wait_until_leader(second)

    assert not first.is_leader
    second.stop()
    assert not [t for t in threading.enumerate() if t.name == "leader-election"]


def test_a_stop_does_not_wait_for_a_hung_request() -> None:
    """Leadership ends at once; the lease is left to run out."""
    hung, reached = threading.Event(), threading.Event()

    class Hung:
        def send(self, _request: Request) -> bytes:
            reached.set()
            hung.wait(LIMIT_S)
            raise errors.Unavailable("hung")

        def stream(self, watch_request: Request) -> AbstractContextManager[Stream]:
            raise NotImplementedError

    candidate = Elector(Hung(), "n", "l", "one", retry_s=0.01, renew_s=0.05, lease_s=1.0)
    candidate.start()
    assert reached.wait(LIMIT_S)
    candidate.stop()

    assert not candidate.is_leader
    hung.set()
    wait_until_ended()


def test_a_stop_sends_nothing_while_a_renewal_is_on_its_way(fake: FakeApi) -> None:
    """A second request would hang too, and their order would be unknown."""
    hung, reached = threading.Event(), threading.Event()
    sent: list[str] = []

    class Hung:
        def send(self, api_request: Request) -> bytes:
            sent.append(api_request.method)
            if sent[2:] == ["PUT"]:
                reached.set()
                hung.wait(LIMIT_S)
            return fake.send(api_request)

        def stream(self, watch_request: Request) -> AbstractContextManager[Stream]:
            raise NotImplementedError

    leader = Elector(Hung(), "n", "l", "one", retry_s=0.01, renew_s=0.05, lease_s=1.0)
    leader.tick()
    leader.start()
    assert reached.wait(LIMIT_S)
    leader.stop()
    by_the_stop = sent[3:]
    hung.set()
    wait_until_ended()

    assert sent[:3] == ["GET", "POST", "PUT"]
    assert by_the_stop == []


def wait_until_ended() -> None:
    """Fails by the test's timeout."""
    while any(thread.name == "leader-election" for thread in threading.enumerate()):
        time.sleep(0.005)


def wait_until_leader(elector: Elector) -> None:
    """Fails by the test's timeout."""
    while not elector.is_leader:
        time.sleep(0.005)
