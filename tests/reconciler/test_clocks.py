"""Clocks that are a minute off: the reconciler's, against those of API server and kubelets."""

import pytest

from policy.cluster.snapshot import Phase
from tests.reconciler.server import of
from tests.reconciler.world import Process, World

_OFF_S = pytest.mark.parametrize("off_s", [-60.0, 60.0])


def _evictions(world: World) -> int:
    evicts = of("POST", "/eviction")
    return sum(map(evicts, world.api.writes))


@_OFF_S
def test_trainers_wait_for_the_scheduler_as_long_as_ever(off_s: float) -> None:
    """For 12 s, by the reconciler's clock; then it withdraws them."""
    world = World(18)
    process = Process(world, ahead_s=off_s)
    process.round()
    world.step()
    world.add_job("a", 1, 3)
    world.extender = None  # nobody schedules
    process.run(11)

    assert _evictions(world) == 0
    process.run(3)
    assert _evictions(world) == 2
    process.stop()


@_OFF_S
def test_a_restart_withdraws_nothing_in_a_hurry(off_s: float) -> None:
    """A new reconciler knows only timestamps of the trainers that wait."""
    world = World(18)
    Process(world, ahead_s=off_s).round()
    world.add_job("a", 1, 3)
    world.extender = None
    first = Process(world, ahead_s=off_s)
    first.run(8)
    first.stop()
    second = Process(world, ahead_s=off_s)
    second.run(2)
    second.stop()

    assert len(world.pods("a")) == 3
    assert _evictions(world) == 0


@_OFF_S
def test_a_failed_trainer_is_replaced_after_the_back_off(off_s: float) -> None:
    """After 10 s by the reconciler's clock, whatever the kubelet's says."""
    world = World(18)
    process = Process(world)
    world.add_job("a", 1, 1)
    process.run(2)
    world.kubelets_ahead_s = off_s
    world.end(world.running("a")[0], Phase.FAILED)
    process.run(8)

    assert world.running("a") == []
    process.run(4)
    assert len(world.running("a")) == 1
    process.stop()
