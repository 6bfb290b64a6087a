"""A reconciler that runs for months keeps no state of deleted objects and never waits for ever."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

import pytest

from kube import errors, request
from kube.request import JOBS
from policy.cluster.snapshot import Phase
from policy.names import ANNOTATION_SERVERS
from reconciler.masters.reports import MasterReport, ReportedState
from tests.reconciler.server import of
from tests.reconciler.world import Process, World


@pytest.fixture
def world() -> World:
    """Two nodes, each with room for three trainers of 5 CPU and one CPU more."""
    return World(16, 16)


def _says(process: Process, world: World, uncommitted: Mapping[int, float]) -> None:
    poller = process.loop.components.masters._poller  # noqa: SLF001 - its thread is tested with real sockets
    report = MasterReport(ReportedState.WORK, world.clock.now_s, "", uncommitted)
    poller._reports[world.job("net").uid] = report  # noqa: SLF001 - see above


def _live_a_full_life(world: World, process: Process) -> None:
    """A job with master and servers; its trainers are refused, fail, succeed and are evicted."""
    no = errors.Forbidden("no", status=403)
    world.api.fake.faults.fail_next(no, match=of("POST", "/rolebindings"))
    annotations = {ANNOTATION_SERVERS: "1"}
    world.add_job("net", 2, 6, master=True, annotations=annotations, activeDeadlineSeconds=9999)
    process.run(5)
    world.api.fake.faults.fail_next(no, match=of("POST", "/ml/pods"))
    world.end(world.running("net")[-1], Phase.FAILED)
    process.run(12)
    _says(process, world, {0: 30.0, 1: 30.0})
    process.run(6)
    world.api.fake.faults.fail_next(errors.TooManyRequests("no"), match=of("POST", "/eviction"))
    world.add_services(2, cpu=4)
    process.run(4)
    world.remove(world.servers("net")[0])
    world.end(world.running("net")[-1], Phase.SUCCEEDED)
    process.run(12)


def _texts(thing: object, path: str, visited: set[int]) -> Iterator[tuple[str, str]]:
    """Every text in what the reconciler's own objects keep, with the way to it."""
    if isinstance(thing, str):
        yield thing, path
    elif id(thing) not in visited:
        visited.add(id(thing))
        for name, part in _parts(thing):
            yield from _texts(part, f"{path}.{name}", visited)


def _parts(thing: object) -> Iterator[tuple[str, object]]:
    if isinstance(thing, Mapping):
        for key, value in thing.items():
            yield "key", key
            yield str(key), value
    elif isinstance(thing, list | tuple | set | frozenset):
        for part in thing:
            yield "part", part
    elif is_dataclass(thing):
        for field in fields(thing):
            yield field.name, getattr(thing, field.name)
    elif type(thing).__module__.startswith("reconciler."):
        yield from vars(thing).items()


def test_nothing_of_a_job_that_is_gone_is_kept(world: World, process: Process) -> None:
    """A cluster has thousands of them in a year, and another of its name is another job."""
    _live_a_full_life(world, process)
    no = errors.Forbidden("no", status=403)
    world.api.fake.faults.fail_next(no, 99, match=of("POST", "/ml/pods"))
    for pod in world.running("net"):
        world.preempt(pod)
    process.run(9)  # it ends while its trainers are refused
    world.api.fake.faults.clear()
    uid = world.job("net").uid
    before = {path for text, path in _texts(process.loop, "loop", set()) if uid in text}
    world.ask(request.delete(JOBS, "ml", "net"))
    process.run(2)
    process.loop.components.masters._poller._begin(0)  # noqa: SLF001 - what its thread does all the time
    process.run(12)
    process.write_events()
    after = {
        path
        for text, path in _texts((process.loop, process.recorder), "loop", set())
        if uid in text or text == "ml/net"
    }

    assert len(before) > 5
    assert after == set()


def test_no_write_may_take_longer_than_ten_seconds(world: World, process: Process) -> None:
    """An API server that does not answer delays each step of a tick that long."""
    _live_a_full_life(world, process)
    kinds = {(w.method, w.path.rpartition("/")[2].rstrip("0123456789")) for w in world.api.writes}

    assert {w.timeout_s for w in world.api.writes} == {10.0, 5.0}
    assert {
        ("POST", "pods"),
        ("POST", "eviction"),
        ("POST", "roles"),
        ("POST", "priorityclasses"),
        ("POST", "poddisruptionbudgets"),
        ("PATCH", "net"),
        ("PATCH", "status"),
        ("PATCH", "net-trainer-"),
    } <= kinds
