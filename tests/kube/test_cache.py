"""The cluster in memory."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from kube import errors, request
from kube.cache import ClusterCache
from kube.fake import FakeApi
from kube.request import CONFIGMAPS, JOBS, NODES, PODS
from policy.names import ANNOTATION_MAX, ANNOTATION_MIN
from policy.snapshot import Pod, Snapshot


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
    """A cluster of one node, one elastic job, one Job that is none of ours, and a policy."""
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
    """At work on it."""
    cache = ClusterCache(fake, config_map=("edl-system", "edl-policy"))
    cache.start()
    try:
        assert cache.wait_synced(3.0)
        while fake.watches < 4:
            time.sleep(0.001)
        yield cache
    finally:
        cache.stop()


def names(cache: ClusterCache) -> set[str]:
    """Of the pods in a snapshot."""
    return {pod.name for pod in cache.snapshot().pods}


def test_a_snapshot_shows_nodes_pods_and_elastic_jobs(fake: FakeApi, cache: ClusterCache) -> None:
    """And is the same object until something changes."""
    before = cache.version
    add_pod(fake, "p1")
    cache.wait_change(before, 3.0)
    snapshot = cache.snapshot()

    assert [node.name for node in snapshot.nodes] == ["n1"]
    assert [pod.name for pod in snapshot.pods] == ["p1"]
    assert [job.name for job in snapshot.jobs] == ["j1"]
    assert cache.snapshot() is snapshot


def test_ended_pods_are_kept_for_jobs_only(fake: FakeApi, cache: ClusterCache) -> None:
    """A trainer's end is still to be counted; a service's holds nothing any more."""
    add_pod(fake, "service")
    add_pod(fake, "trainer", job="j1")
    set_phase(fake, "trainer", "Failed")
    assert cache.changes.wait_for(lambda: len(names(cache)) == 2, 3.0)
    set_phase(fake, "service", "Succeeded")
    assert cache.changes.wait_for(lambda: names(cache) == {"trainer"}, 3.0)

    (pod,) = cache.snapshot().pods
    assert (pod.name, pod.terminal) == ("trainer", True)


def test_the_policy_is_the_named_configmap(fake: FakeApi, cache: ClusterCache) -> None:
    """Its text, and nothing once it is deleted."""
    policy = cache.config_map
    assert policy is not None
    assert policy.data == {"policy.yaml": "edl-policy"}

    before = cache.version
    fake.send(request.delete(CONFIGMAPS, "edl-system", "edl-policy"))
    cache.wait_change(before, 3.0)
    assert cache.config_map is None


def test_without_a_policy_to_follow_there_are_three_watches(fake: FakeApi) -> None:
    """The ConfigMap is optional."""
    cache = ClusterCache(fake)

    assert sorted(cache.reflectors) == ["jobs", "nodes", "pods"]
    assert cache.config_map is None
    assert (cache.synced, cache.snapshot(), cache.version) == (False, Snapshot(), 0)


def test_a_burst_is_one_change(fake: FakeApi, cache: ClusterCache) -> None:
    """Gathering waits on after the first change, so that all of them are seen."""
    before = cache.version
    for number in range(20):
        add_pod(fake, f"p{number}")
    after = cache.wait_change(before, 3.0, gather_s=0.2)

    assert after - before == 20
    assert len(names(cache)) == 20
    assert cache.wait_change(after, 0.0) == after


def test_a_waiter_is_woken_by_the_end(cache: ClusterCache) -> None:
    """Stopping does not leave a loop waiting for its timeout."""
    done = threading.Event()

    def wait() -> None:
        cache.wait_change(cache.version, 60.0)
        done.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    cache.stop()
    waiter.join(3.0)

    assert done.is_set()


def test_malformed_amounts_are_counted(fake: FakeApi, cache: ClusterCache) -> None:
    """The pod is there, with nothing counted for it."""
    before = cache.version
    add_pod(fake, "p1", cpu="lots")
    cache.wait_change(before, 3.0)

    assert cache.snapshot().pods[0].requests == {"pods": 1}
    assert cache.decoder.malformed == 1


def test_its_age_is_that_of_its_oldest_watch(fake: FakeApi) -> None:
    """One silent watch is enough to be stale."""
    now = [0.0]
    cache = ClusterCache(fake, clock_s=lambda: now[0])
    now[0] = 10.0
    cache.start()
    try:
        assert cache.wait_synced(3.0)
        assert cache.age_s(12.0) == 2.0
    finally:
        cache.stop()


def test_a_server_that_is_down_does_not_sync(fake: FakeApi) -> None:
    """Waiting gives up in time, and the stop is prompt."""
    fake.faults.fail_next(errors.Unavailable("down"), count=10_000)
    cache = ClusterCache(fake)
    cache.start()
    try:
        assert not cache.wait_synced(0.05)
    finally:
        cache.stop()

    assert not [t for t in threading.enumerate() if t.name.startswith("watch-")]


def test_readers_never_see_half_a_relist(fake: FakeApi, cache: ClusterCache) -> None:
    """A list that replaces every pod by another appears in one step."""
    for number in range(50):
        add_pod(fake, f"old-{number}")
    assert cache.changes.wait_for(lambda: len(names(cache)) == 50, 3.0)
    sizes: set[int] = set()

    def listen(_old: Pod | None, _new: Pod | None) -> None:
        seen.set()

    seen = threading.Event()
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
        sizes.add(len(cache.snapshot().pods))

    assert seen.is_set()
    assert sizes == {50}
