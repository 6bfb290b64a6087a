"""The cluster in memory."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from kube import errors, request
from kube.cache import ClusterCache
from kube.changes import Changes
from kube.request import CONFIGMAPS, JOBS, NODES, PODS
from lab.fake_api import FakeApi
from policy.cluster.snapshot import Pod
from policy.names import ANNOTATION_MAX, ANNOTATION_MIN
from tests.kube.items import FaultyWatchApi

LIMIT_S = 60.0
"""Ends a hang, and nothing else."""


def add_pod(api: FakeApi, name: str, *, cpu: str = "1", job: str = "") -> Any:
    """A pod in namespace "n"."""
    labels = {"edl.training/job": job, "edl.training/role": "trainer"} if job else {}
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}}
    return orjson.loads(api.send(request.create(PODS, "n", body)))


def set_phase(api: FakeApi, name: str, phase: str) -> None:
    """Plays the kubelet."""
    status = {"status": {"phase": phase}}
    api.send(request.merge_patch(PODS, "n", name, status, subresource="status"))


@pytest.fixture
def fake() -> FakeApi:
    """A cluster of one node, one elastic job, one other Job, and a policy."""
    api = FakeApi()
    node = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4"}}}
    api.send(request.create(NODES, None, node))
    bounds = {ANNOTATION_MIN: "1", ANNOTATION_MAX: "2"}
    spec: dict[str, Any] = {"template": {"spec": {"containers": []}}}
    elastic = {"metadata": {"name": "j1", "annotations": bounds}, "spec": spec}
    api.send(request.create(JOBS, "n", elastic))
    api.send(request.create(JOBS, "n", {"metadata": {"name": "j2"}, "spec": spec}))
    for name in ("edl-policy", "other"):
        policy = {"metadata": {"name": name}, "data": {"policy.yaml": name}}
        api.send(request.create(CONFIGMAPS, "edl-system", policy))
    return api


@pytest.fixture
def cache(fake: FakeApi) -> Iterator[ClusterCache]:
    """A running cache of it."""
    cache = ClusterCache(fake, config_map=("edl-system", "edl-policy"))
    cache.start()
    try:
        assert cache.changes.wait_for(lambda: cache.synced, LIMIT_S)
        while fake.watches < 4:
            time.sleep(0.001)
        yield cache
    finally:
        cache.stop()


def names(cache: ClusterCache) -> set[str]:
    """The names of the pods."""
    return {pod.name for pod in cache.pods.records()}


def test_it_has_nodes_pods_and_elastic_jobs(fake: FakeApi, cache: ClusterCache) -> None:
    """The records are the same object until something changes."""
    before = cache.changes.version
    add_pod(fake, "p1")
    cache.wait_change(before, LIMIT_S)
    pods = cache.pods.records()

    assert [node.name for node in cache.nodes.records()] == ["n1"]
    assert [pod.name for pod in pods] == ["p1"]
    assert [job.name for job in cache.jobs.records()] == ["j1"]
    assert cache.pods.records() is pods


def test_ended_pods_are_kept_for_jobs_only(fake: FakeApi, cache: ClusterCache) -> None:
    """A trainer's end is still to be counted; a service's holds nothing any more."""
    add_pod(fake, "service")
    add_pod(fake, "trainer", job="j1")
    set_phase(fake, "trainer", "Failed")
    assert cache.changes.wait_for(lambda: len(names(cache)) == 2, LIMIT_S)
    set_phase(fake, "service", "Succeeded")
    assert cache.changes.wait_for(lambda: names(cache) == {"trainer"}, LIMIT_S)

    (pod,) = cache.pods.records()
    assert (pod.name, pod.terminal) == ("trainer", True)


def test_the_policy_is_the_named_configmap(fake: FakeApi, cache: ClusterCache) -> None:
    """It has the policy's text, and is gone after deletion; other namespaces are ignored."""
    other = {"metadata": {"name": "edl-policy", "namespace": "ml"}, "data": {"policy.yaml": "no"}}
    fake.send(request.create(CONFIGMAPS, "ml", other))
    assert cache.config is not None
    (policy,) = cache.config.records()
    assert policy.data == {"policy.yaml": "edl-policy"}

    before = cache.changes.version
    fake.send(request.delete(CONFIGMAPS, "edl-system", "edl-policy"))
    cache.wait_change(before, LIMIT_S)
    assert cache.config.records() == ()


def test_without_a_policy_to_follow_there_are_three_watches(fake: FakeApi) -> None:
    """The ConfigMap is optional."""
    cache = ClusterCache(fake)

    assert sorted(cache.reflectors) == ["jobs", "nodes", "pods"]
    assert cache.config is None
    records = [reflector.records() for reflector in cache.reflectors.values()]
    assert (cache.synced, records, cache.changes.version) == (False, [(), (), ()], 0)


def test_a_burst_is_one_change(
    fake: FakeApi, cache: ClusterCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes during the gathering time belong to the same wait."""
    before = cache.changes.version
    waits: list[float] = []
    wait_for = cache.changes.wait_for

    def ten_more(predicate: Callable[[], bool], timeout_s: float) -> bool:
        waits.append(timeout_s)
        for number in range(10):
            add_pod(fake, f"p{len(waits)}-{number}")
        assert wait_for(lambda: len(names(cache)) == 10 * len(waits), LIMIT_S)
        return predicate()

    with monkeypatch.context() as patch:
        patch.setattr(cache.changes, "wait_for", ten_more)
        patch.setattr(cache.changes, "gather", lambda gather_s: ten_more(lambda: True, gather_s))
        after = cache.wait_change(before, 9.0, gather_s=0.2)

    assert waits == [9.0, 0.2]
    assert after - before == 20
    assert cache.wait_change(after, 0.0) == after


def test_changes_that_are_gathered_wake_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a burst there are hundreds a second, and each would interrupt the thread that reads them."""
    changes = Changes()
    changes.bump()
    waits: list[float] = []
    wait = changes.condition.wait

    def noted(limit_s: float) -> bool:
        waits.append(limit_s)
        return wait(0)

    monkeypatch.setattr(changes.condition, "wait", noted)

    assert changes.wait(0, 9.0, gather_s=0.01) == 1
    assert waits == []


def test_nothing_is_gathered_unasked(
    fake: FakeApi, cache: ClusterCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `gather_s` the wait ends at the first change."""
    before = cache.changes.version
    add_pod(fake, "p1")
    assert cache.changes.wait_for(lambda: cache.changes.version > before, LIMIT_S)
    waits: list[float] = []

    def count_wait(predicate: Callable[[], bool], timeout_s: float) -> bool:
        waits.append(timeout_s)
        return predicate()

    with monkeypatch.context() as patch:
        patch.setattr(cache.changes, "wait_for", count_wait)
        assert cache.wait_change(before, 9.0) == before + 1

    assert waits == [9.0]


def test_a_waiter_is_woken_by_the_end(cache: ClusterCache) -> None:
    """Stopping does not leave a loop waiting for its timeout."""
    done = threading.Event()

    def wait() -> None:
        cache.wait_change(cache.changes.version, 60.0)
        done.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    cache.stop()
    waiter.join(LIMIT_S)

    assert done.is_set()


def test_malformed_amounts_are_no_obstacle(fake: FakeApi, cache: ClusterCache) -> None:
    """The pod is there, with nothing counted for it."""
    before = cache.changes.version
    add_pod(fake, "p1", cpu="lots")
    cache.wait_change(before, LIMIT_S)

    assert cache.pods.records()[0].requests == {"pods": 1}


def test_its_age_counts_from_the_last_word(fake: FakeApi) -> None:
    """The age counts from the server's last message, on the given clock."""
    now = [0.0]
    cache = ClusterCache(fake, clock_s=lambda: now[0])
    now[0] = 10.0
    cache.start()
    try:
        assert cache.changes.wait_for(lambda: cache.synced, LIMIT_S)
        assert cache.age_s(12.0) == 2.0
    finally:
        cache.stop()


@pytest.mark.parametrize("silent", ["nodes", "pods", "jobs", "configmaps"])
def test_one_dead_watch_beside_healthy_ones_makes_it_old(fake: FakeApi, silent: str) -> None:
    """Otherwise decisions would take deleted pods for running ones."""
    now = [0.0]
    followed = ("edl-system", "edl-policy")
    faulty = FaultyWatchApi(fake)
    cache = ClusterCache(faulty, config_map=followed, clock_s=lambda: now[0])
    healthy = [reflector for name, reflector in cache.reflectors.items() if name != silent]
    for reflector in cache.reflectors.values():
        reflector.follow_once()
    now[0] = 10.0
    for faulty.mishap in ("gone", ""):  # so that they list again
        for reflector in healthy:
            reflector.follow_once()

    assert [reflector.age_s(12.0) for reflector in healthy] == [2.0, 2.0, 2.0]
    assert cache.age_s(12.0) == 12.0


def test_a_server_that_is_down_does_not_sync(fake: FakeApi) -> None:
    """Waiting gives up in time, and the stop is prompt."""
    fake.faults.fail_next(errors.Unavailable("down"), count=10_000)
    cache = ClusterCache(fake)
    cache.start()
    try:
        assert not cache.changes.wait_for(lambda: cache.synced, 0.05)
    finally:
        cache.stop()

    assert not [t for t in threading.enumerate() if t.name.startswith("watch-")]


def test_readers_never_see_half_a_relist(fake: FakeApi, cache: ClusterCache) -> None:
    """A list that replaces every pod by another appears in one step."""
    for number in range(50):
        add_pod(fake, f"old-{number}")
    assert cache.changes.wait_for(lambda: len(names(cache)) == 50, LIMIT_S)
    sizes: set[int] = set()

    def listen(_old: Pod | None, _new: Pod | None) -> None:
        relisted.set()

    relisted = threading.Event()
    cache.pods.listen(listen)
    fake.faults.fail_next(
        errors.Gone("too old", status=410),
        match=lambda r: "watch" in r.target and "/pods" in r.path,
    )
    fake.disconnect()
    for number in range(50):
        fake.send(request.delete(PODS, "n", f"old-{number}"))
        add_pod(fake, f"new-{number}")
    while "new-49" not in names(cache):
        sizes.add(len(cache.pods.records()))

    assert relisted.is_set()
    assert sizes == {50}
