"""The work fetcher: how often it calls the master where there is nothing to fetch."""

import threading
from collections import deque

import pytest
from edl.data.lease_sink import LeaseSink
from edl.data.work_fetcher import WorkFetcher
from edl.errors import EdlError
from edl.master.protocol import Lease

from tests.sdk.conftest import Join
from tests.sdk.support.contract import NUMBERS
from tests.sdk.support.fake_master import Json
from tests.sdk.support.loops import LIMIT_S
from tests.sdk.support.master_server import Fault, Handler, Server

ASKS = 8


class Waits(threading.Condition):
    """A condition that records its waits; they take no time, but advance a clock."""

    def __init__(self, lock: threading.Lock) -> None:
        super().__init__(lock)
        self.all: list[float | None] = []
        self.now_s = 100.0

    def wait(self, timeout: float | None = None) -> bool:
        """Returns at once: nobody notifies."""
        self.all.append(timeout)
        self.now_s += timeout or 0.0
        return False


class Idle(LeaseSink):
    """A sink that always wants a task, until the fetcher has waited often enough."""

    def __init__(self) -> None:
        super().__init__(task_records=1)
        self.waits = Waits(self.lock)
        self.call_due = self.waits
        self.ended = threading.Event()

    def leases_wanted(self) -> int:
        """Always one."""
        if len(self.waits.all) == ASKS:
            self.closing = True
            self.ended.set()
        return 1

    def mark_away(self) -> None:
        """The master answers."""
        raise AssertionError

    def end(self, error: EdlError | None = None) -> None:
        """Shows an error as what it is."""
        raise AssertionError(error)

    def _append(self, leases: tuple[Lease, ...]) -> None:
        """Nobody trains on them, so they stay held."""


def _again_after(again_s: float | None) -> Fault:
    def change_answer(_: Handler, answer: Json) -> bool:
        answer.pop("again_s")
        if again_s is not None:
            answer["again_s"] = again_s
        return False

    return change_answer


@pytest.mark.parametrize(("answer_s", "pause_s"), [(None, 0.2), (0.7, 0.7), (0.0, 0.02)])
def test_a_master_without_work_is_left_alone_for_as_long_as_it_says(
    server: Server,
    join: Join,
    monkeypatch: pytest.MonkeyPatch,
    answer_s: float | None,
    pause_s: float,
) -> None:
    """Or for 0.2 s; thousands of trainers that wait for others must not keep it busy."""
    member, store = join(), Idle()
    member.join()
    member.describe("train", {**NUMBERS, "records": 10})
    monkeypatch.setattr("edl.clock.monotonic_s", lambda: store.waits.now_s)
    server.faults["/v1/work"] = deque([_again_after(answer_s)] * (ASKS + 1))
    fetcher = WorkFetcher(member, store, "train", "training")
    fetcher.start()
    assert store.ended.wait(LIMIT_S)
    fetcher.close(LIMIT_S)

    assert store.waits.all == [pytest.approx(pause_s)] * ASKS
    first, *others = server.bodies("/v1/work")
    assert len(others) == ASKS  # the first one brought the only task
    assert first["wait_s"] > 1.0
    assert {call.get("wait_s", 0.0) for call in others} == {0.0}  # who holds a task reports it
