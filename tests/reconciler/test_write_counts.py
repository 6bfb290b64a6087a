"""How few writes trainers cost, and that none is lost in the accounting for it."""

from collections.abc import Iterator

import pytest

from kube import request
from kube.request import JOBS, PODS, Request
from tests.reconciler import objects
from tests.reconciler.world import Process, World

_JOBS = 6
_HIGH = 30


@pytest.fixture
def world() -> World:
    """Room for all trainers of all jobs, which takes several plans to fill."""
    world = World(*[150] * _JOBS)
    for i in range(_JOBS):
        world.add_job(f"net-{i}", 2, _HIGH)
    return world


@pytest.fixture
def process(world: World) -> Iterator[Process]:
    """The reconciler of that world."""
    process = Process(world)
    yield process
    process.stop()


def _reservations(writes: list[Request]) -> int:
    """Writes to Jobs that reserve ids; those of the status end with /status."""
    return sum(write.method == "PATCH" and "/jobs/net-" in write.path for write in writes) - sum(
        write.path.endswith("/status") for write in writes
    )


def _status_writes(world: World) -> int:
    return sum(
        "/jobs/" in write.path and write.path.endswith("/status") for write in world.api.writes
    )


def _live_ids(world: World, name: str) -> set[int]:
    return {pod.trainer_id for pod in world.pods(name) if not pod.deleting}


def test_a_job_reserves_its_ids_in_a_few_writes(world: World, process: Process) -> None:
    """Two for thirty trainers, not one for each: as many ids ahead as the job has trainers."""
    process.run(24)

    assert [len(world.running(f"net-{i}")) for i in range(_JOBS)] == [_HIGH] * _JOBS
    assert _reservations(world.api.writes) == 2 * _JOBS


def test_where_many_jobs_change_each_is_written_less_often() -> None:
    """Of forty, twenty in the first tick, and then twenty a second, those that have waited longest."""
    world = World(*[300] * 4)
    for i in range(40):
        world.add_job(f"net-{i}", 1, 1)
    process = Process(world)
    process.run(4)
    world.clock.advance(5)
    of_ticks: list[int] = []
    for ready in ("False", "False", "True", "True", "True"):
        for i in range(40):
            body = {"status": {"conditions": [{"type": "Ready", "status": ready}]}}
            pod = f"net-{i}-trainer-0"
            world.ask(request.merge_patch(PODS, "ml", pod, body, subresource="status"))
        before = _status_writes(world)
        process.round()
        of_ticks.append(_status_writes(world) - before)
        world.clock.advance(0.5)
    process.stop()

    assert of_ticks == [20, 10, 10, 10, 10]


def test_a_job_that_is_resumed_says_so_at_once_and_its_counts_follow() -> None:
    """However many others have got a condition just before: these delay no counts."""
    world = World(100)
    for i in range(60):
        world.add_job(f"net-{i}", 1, 1)
        world.change_job(f"net-{i}", {"spec": {"suspend": True}})
    process = Process(world)
    process.round()
    world.step()
    world.change_job("net-7", {"spec": {"suspend": False}})
    process.round()
    suspended = [c.status for c in world.job("net-7").status.conditions if c.type == "Suspended"]
    world.step()
    process.round()
    process.stop()

    assert suspended == ["False"]
    assert world.job("net-7").status.active == 1


def test_ids_that_are_not_needed_are_given_back(world: World, process: Process) -> None:
    """Growth ends where services take the room: the accounting is that of the trainers there are."""
    process.run(3)
    ahead = [len(world.job(f"net-{i}").accounting.open) for i in range(_JOBS)]
    live = [len(world.pods(f"net-{i}")) for i in range(_JOBS)]
    for i in range(_JOBS):
        world.change_job(
            f"net-{i}", {"metadata": {"annotations": {"edl.training/max-trainers": "9"}}}
        )
    process.run(6)
    ended = [world.job(f"net-{i}").accounting for i in range(_JOBS)]

    assert all(more > count for more, count in zip(ahead, live, strict=True))
    for i, accounting in enumerate(ended):
        assert accounting.open == _live_ids(world, f"net-{i}")
        assert accounting.next_id == len(accounting.open) + accounting.released
        assert accounting.disrupted == 0


def test_ids_that_a_dead_leader_reserved_are_counted_and_never_used(
    world: World, process: Process
) -> None:
    """Nobody knows whether their pods ever existed, so each counts as a disrupted trainer."""
    process.run(3)
    before = {name: _live_ids(world, name) for name in (f"net-{i}" for i in range(_JOBS))}
    reserved = {name: world.job(name).accounting.next_id for name in before}
    successor = Process(world)
    successor.run(24)
    successor.stop()

    for name, ids in before.items():
        accounting = world.job(name).accounting
        assert accounting.open == _live_ids(world, name)
        assert len(accounting.open) == _HIGH
        assert accounting.disrupted == reserved[name] - len(ids)
        assert not set(range(max(ids) + 1, reserved[name])) & accounting.open


def test_a_process_that_lost_the_lead_uses_no_id_of_its_own_time(world: World) -> None:
    """It leads again later: what it had reserved has been counted by the other one."""
    leads = [True, False]
    first = Process(world, lambda: leads[0])
    second = Process(world, lambda: leads[1])
    names: list[str] = []
    for turn in range(24):
        if turn in (2, 5):
            leads.reverse()
        for process in (first, second):
            process.round()
        names += [pod.name for pod in world.pods("net-0") if pod.name not in names]
        world.step()
    first.stop()
    second.stop()
    accounting = world.job("net-0").accounting

    assert len(_live_ids(world, "net-0")) == _HIGH
    assert accounting.open == _live_ids(world, "net-0")
    assert accounting.next_id == len(accounting.open) + accounting.disrupted
    assert len(names) == len(set(names))


def test_new_conditions_of_many_jobs_take_several_ticks() -> None:
    """A tenant suspends a hundred and twenty jobs; the one of another namespace does not wait for them."""
    world = World(100)
    for i in range(120):
        world.add_job(f"net-{i}", 1, 1, suspend=True)
    other = objects.job("other", 1, 1, suspend=True)
    other["metadata"]["namespace"] = "shop"
    world.ask(request.create(JOBS, "shop", other))
    process = Process(world)
    of_ticks = [[w.path for w in world.api.writes if "/jobs/" in w.path]]
    for _ in range(3):
        before = len(world.api.writes)
        process.round()
        of_ticks.append([w.path for w in world.api.writes[before:] if w.path.endswith("/status")])
        world.clock.advance(0.1)
    process.stop()

    assert [len(paths) for paths in of_ticks] == [0, 100, 21, 0]
    assert any("/shop/" in path for path in of_ticks[1])
