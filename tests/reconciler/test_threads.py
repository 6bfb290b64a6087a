"""The reconciler with its real threads, on a cluster in memory."""

import threading
from collections.abc import Iterator

import pytest

from kube.active import ActivePolicy
from kube.cache import ClusterCache
from kube.request import JOBS, NODES, create
from lab.fake_api import FakeApi
from reconciler.loop import Reconciler
from reconciler.metrics import ReconcilerMetrics
from reconciler.records.events import EventRecorder
from reconciler.settings import ReconcilerSettings
from runtime.metrics import Metrics
from tests.reconciler import objects
from tests.reconciler.waiting import LIMIT_S, until


class Threads:
    """A reconciler at work on a cluster in memory, with its real threads."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.api.send(create(NODES, None, objects.node("n0", 16)))
        self.cache = ClusterCache(self.api)
        self.recorder = EventRecorder(self.api, "test")
        self.fails = 0
        self.loop = Reconciler(
            self.api,
            ReconcilerSettings(gather_seconds=0),
            cache=self.cache,
            policy=ActivePolicy(),
            leads=self.leads,
            recorder=self.recorder,
            metrics=ReconcilerMetrics(Metrics("reconciler")),
        )

    def trainers(self) -> int:
        """Trainers that the watch shows."""
        return sum(1 for pod in self.cache.pods.records() if pod.job)

    def leads(self) -> bool:
        """Leads, after as many errors as were ordered."""
        if self.fails:
            self.fails -= 1
            raise RuntimeError("who leads is not known")
        return True

    def start(self) -> None:
        """As `reconciler.app` does."""
        self.cache.start()
        assert self.cache.changes.wait_for(lambda: self.cache.synced, LIMIT_S)
        self.recorder.start()
        self.loop.start()

    def stop(self) -> None:
        """As `reconciler.app` does."""
        self.loop.stop()
        self.recorder.stop()
        self.cache.stop()


@pytest.fixture
def threads() -> Iterator[Threads]:
    """Not started yet; no thread of it is left afterwards."""
    before = set(threading.enumerate())
    stand_in = Threads()
    try:
        yield stand_in
    finally:
        stand_in.stop()
    until(lambda: set(threading.enumerate()) <= before)


def test_a_job_that_appears_wakes_the_loop(threads: Threads) -> None:
    """No tick is waited for."""
    threads.start()
    threads.api.send(create(JOBS, "ml", objects.job("net", 1, 3)))

    until(lambda: threads.trainers() == 3)


def test_a_round_that_fails_is_not_the_end(
    threads: Threads, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged with its cause, and the loop can still be stopped."""
    threads.fails = 10_000
    threads.start()
    until(lambda: "tick failed" in caplog.text)

    assert "who leads is not known" in caplog.text


def test_work_goes_on_after_a_round_that_failed(threads: Threads) -> None:
    """The pause is half a second at first."""
    threads.fails = 1
    threads.api.send(create(JOBS, "ml", objects.job("net", 1, 1)))
    threads.start()

    until(lambda: threads.trainers() == 1)
    assert threads.fails == 0
