"""A tenant's own PodDisruptionBudgets over its trainers, on a cluster in memory."""

from collections.abc import Iterator

import pytest

from kube import request
from kube.request import PODDISRUPTIONBUDGETS
from tests.reconciler.server import of
from tests.reconciler.world import Process, World

_EVICTIONS = of("POST", "/eviction")
_FIVE = {"metadata": {"annotations": {"edl.training/max-trainers": "5"}}}


@pytest.fixture
def world() -> World:
    """Room for six trainers, and a job that wants them."""
    cluster = World(16, 16)
    cluster.add_job("net", 2, 6)
    return cluster


@pytest.fixture
def process(world: World) -> Iterator[Process]:
    """A reconciler there, after the job's start."""
    reconciler = Process(world)
    try:
        reconciler.run(3)
        yield reconciler
    finally:
        reconciler.stop()


def _deletions(world: World) -> int:
    return sum(w.method == "DELETE" and "/pods/" in w.path for w in world.api.writes)


def _add_budget(world: World, tier: str, name: str = "mine") -> None:
    selector = {"matchLabels": {"edl.training/tier": tier}}
    budget = {"metadata": {"name": name}, "spec": {"selector": selector}}
    world.ask(request.create(PODDISRUPTIONBUDGETS, "ml", budget))


def test_an_eviction_that_a_budget_refuses_is_tried_again(world: World, process: Process) -> None:
    """When it allows, the trainer goes."""
    _add_budget(world, "surplus")
    world.change_job("net", _FIVE)
    process.run(3)
    refused = len(world.running("net")), sum(map(_EVICTIONS, world.api.writes))
    allowed = {"status": {"disruptionsAllowed": 1}}
    patch = request.merge_patch(PODDISRUPTIONBUDGETS, "ml", "mine", allowed, subresource="status")
    world.ask(patch)
    process.run(8)

    assert refused[0] == 6
    assert 1 <= refused[1] <= 3
    assert len(world.running("net")) == 5
    assert _deletions(world) == 0


@pytest.mark.parametrize("names", [("mine",), ("mine", "also-mine")])
def test_a_budget_keeps_surplus_no_longer_than_half_a_minute(
    world: World, process: Process, names: tuple[str, ...]
) -> None:
    """Then the trainer is deleted, as kube-scheduler would preempt it. Several budgets are an error 500."""
    for name in names:
        _add_budget(world, "surplus", name)
    world.change_job("net", _FIVE)
    process.run(25)
    kept = len(world.running("net"))
    process.run(15)

    assert kept == 6
    assert len(world.running("net")) == 5
    assert _deletions(world) == 1
    assert world.job("net").accounting.released == 1


def test_a_budget_keeps_what_is_guaranteed(world: World, process: Process) -> None:
    """A minimum is what a budget is for: of a job that shrinks below its guaranteed trainers, none is deleted."""
    world.change_job("net", {"metadata": {"annotations": {"edl.training/min-trainers": "6"}}})
    process.run(10)
    _add_budget(world, "guaranteed")
    lower = {"edl.training/min-trainers": "1", "edl.training/max-trainers": "1"}
    world.change_job("net", {"metadata": {"annotations": lower}})
    process.run(60)

    guaranteed = [pod for pod in world.running("net") if pod.tier == "guaranteed"]
    assert len(guaranteed) >= 2
    assert _deletions(world) == 0


def test_refusals_long_ago_count_no_more(world: World, process: Process) -> None:
    """A trainer that was to go an hour ago has half a minute again."""
    _add_budget(world, "surplus")
    world.change_job("net", _FIVE)
    process.run(25)
    world.change_job("net", {"metadata": {"annotations": {"edl.training/max-trainers": "6"}}})
    process.run(1)
    world.clock.advance(3600)
    world.change_job("net", _FIVE)
    process.run(25)

    assert len(world.running("net")) == 6


def test_of_pods_that_are_gone_nothing_is_kept(world: World, process: Process) -> None:
    """No more refusals than there are pods."""
    _add_budget(world, "surplus")
    world.change_job("net", _FIVE)
    process.run(10)
    for pod in world.running("net"):
        world.remove(pod)
    process.run(60)

    assert len(world.running("net")) == 5
