"""A leader whose ticks fail or hang gives the lease up, and the standby plans on."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kube import request
from kube.lease import Elector
from kube.request import CONFIGMAPS, Request
from policy.names import POLICY_CONFIGMAP, SYSTEM_NAMESPACE
from reconciler import watchdog
from reconciler.watchdog import PATIENCE_S, REST_S, Watchdog
from tests.reconciler.server import Clock, look
from tests.reconciler.world import Process, World


class Replica:
    """A reconciler with an elector, both on virtual time."""

    def __init__(self, world: World, name: str) -> None:
        self.elector = Elector(
            *(world.api, "edl-system", "edl-reconciler", name),
            clock_s=world.clock.seconds,
            wall=world.clock.now,
            may_lead=lambda leads: self.process.loop.may_lead(leads=leads),
        )
        self.process = Process(world, lambda: self.elector.is_leader)
        self.terms: list[float] = []
        """Lengths of its terms as leader, in seconds."""
        self._since_s: float | None = None

    def observe(self, now_s: float) -> None:
        """Notes whether it leads."""
        if self.elector.is_leader and self._since_s is None:
            self._since_s = now_s
        elif not self.elector.is_leader and self._since_s is not None:
            self.terms.append(now_s - self._since_s)
            self._since_s = None


@pytest.fixture
def world() -> World:
    """One node, with room for three trainers."""
    return World(16)


@pytest.fixture
def replicas(world: World) -> Iterator[list[Replica]]:
    """Two of them; the first one leads."""
    both = [Replica(world, "a"), Replica(world, "b")]
    both[0].elector.tick()
    yield both
    for replica in both:
        replica.process.stop()


def _run(world: World, replicas: list[Replica], seconds: int, *, only_ticks: bool = False) -> float:
    """Runs all for some time; returns for how many seconds somebody led.

    With `only_ticks` nothing happens in the cluster, which saves real time.
    """
    led_s = 0.0
    for second in range(seconds):
        for replica in replicas:
            if second % 2 == 0:
                replica.elector.tick()
            if not replica.process.loop.watchdog.health.stuck_s:
                _tick(replica, only_ticks=only_ticks)
            replica.observe(world.clock.seconds())
        led_s += any(replica.elector.is_leader for replica in replicas)
        world.clock.advance(1) if only_ticks else world.step()
    return led_s


def _tick(replica: Replica, *, only_ticks: bool = False) -> None:
    if not only_ticks:
        look(replica.process.cache)
    replica.process.loop.try_tick()
    replica.process.writers.settle()


def _fail(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


def test_a_leader_whose_ticks_fail_is_followed_within_15_seconds(
    world: World, replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error may be in its memory alone; its figures say so."""
    monkeypatch.setattr(replicas[0].process.loop, "_plan", _fail)
    world.add_job("net", 1, 2)
    _run(world, replicas, 15)

    assert [replica.elector.is_leader for replica in replicas] == [False, True]
    assert len(world.running("net")) >= 1
    assert replicas[0].process.loop.watchdog.given_up == {"failing": 1, "stuck": 0}
    assert int(float(replicas[0].process.value("edl_reconciler_rounds_failed_total"))) >= 10


def test_a_leader_whose_tick_hangs_is_followed_within_15_seconds(
    world: World, replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tick plans when it ends after all is not carried out."""
    hanging, going_on = threading.Event(), threading.Event()
    loop = replicas[0].process.loop
    plan = loop._plan  # noqa: SLF001 - where it hangs

    def hang(*args: Any) -> Any:
        hanging.set()
        assert going_on.wait(60.0)
        return plan(*args)

    monkeypatch.setattr(loop, "_plan", hang)
    world.add_job("net", 2, 2)
    thread = threading.Thread(target=lambda: _tick(replicas[0]))
    thread.start()
    assert hanging.wait(60.0)
    world.clock.advance(1)
    _run(world, replicas, 14)
    leaders = [replica.elector.is_leader for replica in replicas]
    created = len(world.api.pods_made)
    going_on.set()
    thread.join()
    _run(world, replicas, 3)

    assert leaders == [False, True]
    assert created == len(world.api.pods_made) == 2
    assert loop.watchdog.given_up == {"failing": 0, "stuck": 1}


def test_replicas_that_both_fail_lead_in_turns_that_become_longer(
    world: World, replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ping-pong: there is a leader nearly all the time, and changes become rare."""
    for replica in replicas:
        monkeypatch.setattr(replica.process.loop, "tick", _fail_as_leader(replica))
    led_s = _run(world, replicas, 1200, only_ticks=True)
    terms = [term for replica in replicas for term in replica.terms]

    assert led_s >= 0.97 * 1200
    assert len(terms) <= 12
    assert replicas[0].terms == sorted(replicas[0].terms)


def _fail_as_leader(replica: Replica) -> Callable[[], Any]:
    return lambda: _fail() if replica.elector.is_leader else None


def test_a_single_replica_that_fails_leads_again(
    world: World, replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing leader is better than none: what it does before the error helps."""
    monkeypatch.setattr(replicas[0].process.loop, "tick", _fail_as_leader(replicas[0]))
    led_s = _run(world, replicas[:1], 600, only_ticks=True)

    assert led_s >= 0.9 * 600


def _watched() -> tuple[Clock, Watchdog]:
    clock = Clock()
    return clock, Watchdog(clock.seconds)


def test_a_tick_that_gets_answers_does_not_hang(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many it needs: a job's master has seven objects, created one after the other."""
    process = Process(world, writers=1)
    watched = process.loop.watchdog
    stuck_s: list[float] = []
    send = world.api.send

    def send_slowly(api_request: Request) -> bytes:
        world.clock.advance(PATIENCE_S - 3)
        stuck_s.append(watched.health.stuck_s)
        return send(api_request)

    world.add_job("net", 2, 2, master=True)
    look(process.cache)
    monkeypatch.setattr(world.api, "send", send_slowly)
    is_done = process.loop.try_tick()
    process.stop()

    assert is_done
    assert len(stuck_s) >= 10
    assert max(stuck_s) == PATIENCE_S - 3


def test_polls_of_masters_are_no_progress_of_a_tick(world: World) -> None:
    """They go on while a tick hangs."""
    process = Process(world)
    watched = process.loop.watchdog
    poller = process.loop.components.masters._poller  # noqa: SLF001 - its threads run on clocks
    read = request.get(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP)
    watched.begin()
    world.clock.advance(PATIENCE_S)
    poller._api.send(read)  # noqa: SLF001
    process.stop()

    assert watched.health.stuck_s == PATIENCE_S


def test_who_has_given_up_leaves_the_lease_to_others_first() -> None:
    """For some seconds; and while its tick hangs, for as long as it does."""
    clock, watched = _watched()
    watched.begin()
    clock.advance(PATIENCE_S)
    gave_up = not watched.may_lead(leads=True)
    clock.advance(REST_S)
    while_stuck = watched.may_lead(leads=False)
    watched.end(failed=True)

    assert (gave_up, while_stuck, watched.may_lead(leads=False)) == (True, False, True)


def test_a_leader_that_was_calm_for_long_has_patience_as_at_first() -> None:
    """Trouble of last month does not make a standby wait."""
    clock, watched = _watched()
    watched.end(failed=True)
    clock.advance(PATIENCE_S)
    assert not watched.may_lead(leads=True)
    watched.end(failed=False)
    clock.advance(watchdog.CALM_S + 1)
    watched.end(failed=False)
    watched.end(failed=True)
    clock.advance(PATIENCE_S)

    assert not watched.may_lead(leads=True)


def test_a_tick_that_hangs_for_two_minutes_ends_the_process() -> None:
    """By its liveness probe, as nothing in the process can end it; failing ticks do not."""
    clock, watched = _watched()
    watched.end(failed=True)
    clock.advance(watchdog.DEAD_S)
    failing = watched.health
    watched.begin()
    clock.advance(watchdog.DEAD_S - 1)
    hanging = watched.health
    clock.advance(1)

    assert (failing.alive, failing.failing_s) == (True, watchdog.DEAD_S)
    assert (hanging.alive, watched.health.alive) == (True, False)
    assert not watched.is_healthy
