"""The benchmark of strangers: with a server of the test, and with each real one as short as it can be."""

import os
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bench import stranger_sockets, strangers
from bench.benchmark import Setting
from bench.stranger_sockets import Approach, Kind, Strangers
from bench.stranger_targets import TARGETS, Target
from e2e.measure.criteria import Criterion
from tests.sdk.support.loops import LIMIT_S, until

SHORT = Setting((10,), 1, lambda _: None)


class _Ender(socketserver.BaseRequestHandler):
    """Ends a connection once something has arrived, or its peer has gone."""

    def handle(self) -> None:
        """Waits for that."""
        self.request.recv(1)


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that ends the connections of all who speak."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Ender) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def _run_on(
    port: int, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]
) -> dict[str, Criterion]:
    """The criteria of a benchmark of one server, which is this process."""

    @contextmanager
    def start() -> Iterator[Target]:
        approaches = {Kind.DRIPPING: Approach(port, b"x"), Kind.IDLE: Approach(port)}
        yield Target(os.getpid(), approaches, 1.0, 2.0, call, pause_s=0.0)

    monkeypatch.setattr(strangers, "TARGETS", {"own": start})
    criteria = strangers.run(SHORT).criteria
    return {criterion.name: criterion for criterion in criteria}


def test_every_figure_of_a_server_has_its_bar(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers within 100 ms, none missing, no restart, and slow connections that end in time."""
    criteria = _run_on(port, monkeypatch, lambda: None)

    assert {name: criterion.limit for name, criterion in criteria.items()} == {
        "strangers_own_call_p99_ms": 100.0,
        "strangers_own_call_p99_ms_alone": None,
        "strangers_own_calls_failed": 0.0,
        "strangers_own_restarts": 0.0,
        "strangers_own_memory_growth_mb": 128.0,
        "strangers_own_slow_ended_s": 6.0,
    }
    assert criteria["strangers_own_calls_failed"].holds


def test_a_call_that_fails_misses_a_bar(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not end the benchmark."""

    def refuse() -> None:
        raise ConnectionResetError

    criteria = _run_on(port, monkeypatch, refuse)

    assert criteria["strangers_own_calls_failed"].value == 10.0
    assert not criteria["strangers_own_calls_failed"].holds


def test_silent_connections_are_measured_in_the_whole_form(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that keeps them misses the bar; the time is at least that of the wait."""
    monkeypatch.setattr(strangers, "_QUICK_ROUNDS", 0)
    monkeypatch.setattr(strangers, "LATE_S", -1.9)
    monkeypatch.setattr(strangers, "COUNTS", strangers.QUICK_COUNTS)
    criterion = _run_on(port, monkeypatch, lambda: None)["strangers_own_silent_ended_s"]

    assert criterion.limit == pytest.approx(0.1)
    assert not criterion.holds


def test_strangers_come_back(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that was ended connects again; those that say nothing stay."""
    monkeypatch.setattr(stranger_sockets, "_REOPEN_S", 0.0)
    approaches = {Kind.HALF_OPEN: Approach(port, b"x"), Kind.IDLE: Approach(port)}
    with Strangers(approaches, {Kind.HALF_OPEN: 2, Kind.IDLE: 1}) as crowd:
        crowd.await_ends((Kind.HALF_OPEN,), LIMIT_S)
        until(lambda: crowd.reopened and crowd.longest_s((Kind.IDLE,)))
        idle_s = crowd.longest_s((Kind.IDLE,))
        assert crowd.longest_s((Kind.DRIPPING,)) == 0.0
        assert crowd.longest_s((Kind.IDLE,)) > idle_s > 0.0


@pytest.mark.soak  # each server is a process, which ends slow connections after 5 or 10 s
@pytest.mark.parametrize("name", TARGETS)
def test_each_server_answers_beside_strangers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ones; each figure was measured."""
    monkeypatch.setattr(strangers, "TARGETS", {name: TARGETS[name]})
    result = strangers.run(SHORT)
    values = {criterion.name: criterion.value for criterion in result.criteria}

    assert None not in values.values()
    assert values[f"strangers_{name}_restarts"] == 0
    assert values.get(f"strangers_{name}_calls_failed", 0) == 0
    assert result.raw[name]["beside"]["memory_mb"] > 10
