"""An index that follows a cluster, drained by its owner."""

from typing import Any

import pytest

from kube import request
from kube.cache import ClusterCache
from kube.live import Change, LiveIndex
from kube.request import JOBS, NODES, PODS
from tests.reconciler import objects
from tests.reconciler.server import Clock, Instant, look


class Followed:
    """A cluster in memory, and the index of it."""

    def __init__(self) -> None:
        self.api = Instant(Clock())
        self.cache = ClusterCache(self.api)
        self.live = LiveIndex(self.cache)

    def make(self, resource: request.Resource, body: dict[str, Any]) -> str:
        """Creates an object; its uid."""
        uid: str = self.api.ask(request.create(resource, body["metadata"].get("namespace"), body))[
            "metadata"
        ]["uid"]
        return uid

    def drop(self, resource: request.Resource, namespace: str | None, name: str) -> None:
        """Deletes one at once."""
        self.api.ask(request.delete(resource, namespace, name, grace_s=0))

    def bind(self, name: str, where: str) -> None:
        """Plays the scheduler."""
        spec = {"spec": {"nodeName": where}}
        self.api.ask(request.merge_patch(PODS, "shop", name, spec))


@pytest.fixture
def cluster() -> Followed:
    """One node."""
    made = Followed()
    made.make(NODES, objects.node("n0", 18))
    return made


def test_what_is_there_arrives_with_the_first_drain(cluster: Followed) -> None:
    """Everything of the first lists, as new."""
    pod = cluster.make(PODS, objects.pod("web", nodeName="n0"))
    job = cluster.make(JOBS, objects.job("net"))
    look(cluster.cache)
    pods, jobs = cluster.live.drain()

    assert [(c.last, c.new and c.new.name) for c in pods.values()] == [(None, "web")]
    assert (set(pods), set(jobs)) == ({pod}, {job})
    assert cluster.live.index.free("n0")["cpu"] == 15_000
    assert "ml/net" in cluster.live.index.jobs


def test_a_listener_that_comes_late_misses_nothing(cluster: Followed) -> None:
    """The watches may have run before."""
    look(cluster.cache)
    late = LiveIndex(cluster.cache)
    late.drain()

    assert set(late.index.nodes) == {"n0"}


def test_the_index_stands_still_between_drains(cluster: Followed) -> None:
    """A plan reads it meanwhile."""
    look(cluster.cache)
    cluster.live.drain()
    cluster.make(PODS, objects.pod("web", nodeName="n0"))
    look(cluster.cache)

    assert cluster.live.index.pods == {}
    assert cluster.live.drain()[0] != {}
    assert cluster.live.drain() == ({}, {})


def test_of_several_changes_the_newest_counts(cluster: Followed) -> None:
    """With the record before it as the last."""
    uid = cluster.make(PODS, objects.pod("web"))
    look(cluster.cache)
    cluster.bind("web", "n0")
    cluster.api.ask(
        request.merge_patch(
            PODS, "shop", "web", {"status": {"phase": "Running"}}, subresource="status"
        )
    )
    look(cluster.cache)
    change = cluster.live.drain()[0][uid]

    assert change.last is not None
    assert change.new is not None
    assert (change.last.node, change.last.phase) == ("n0", "Pending")
    assert change.new.phase == "Running"


def test_a_pod_that_came_and_went_is_known_by_its_last_record(cluster: Followed) -> None:
    """Its end is still to be counted."""
    look(cluster.cache)
    uid = cluster.make(PODS, objects.pod("web"))
    cluster.drop(PODS, "shop", "web")
    look(cluster.cache)
    change = cluster.live.drain()[0][uid]

    assert change.last is not None
    assert (change.last.name, change.new) == ("web", None)
    assert cluster.live.index.pods == {}


def test_nodes_come_and_go(cluster: Followed) -> None:
    """One that is made again under its name is there."""
    look(cluster.cache)
    cluster.live.drain()
    cluster.drop(NODES, None, "n0")
    look(cluster.cache)
    cluster.live.drain()
    gone = dict(cluster.live.index.nodes)
    cluster.make(NODES, objects.node("n0", 4))
    cluster.drop(NODES, None, "n0")
    cluster.make(NODES, objects.node("n0", 8))
    look(cluster.cache)
    cluster.live.drain()

    assert gone == {}
    assert cluster.live.index.nodes["n0"].allocatable["cpu"] == 8000


@pytest.mark.parametrize("between", [True, False])
def test_a_job_made_again_is_another_job(cluster: Followed, *, between: bool) -> None:
    """Whether or not its end was drained before: the old one's end does not drop the new one."""
    old = cluster.make(JOBS, objects.job("net"))
    look(cluster.cache)
    cluster.live.drain()
    cluster.drop(JOBS, "ml", "net")
    if between:
        look(cluster.cache)
        cluster.live.drain()
        assert cluster.live.index.jobs == {}
    new = cluster.make(JOBS, objects.job("net"))
    look(cluster.cache)
    jobs = cluster.live.drain()[1]

    assert cluster.live.index.jobs["ml/net"].uid == new
    assert jobs[new].new is not None
    assert (old in jobs) is not between


def test_a_job_that_came_and_went_leaves_nothing(cluster: Followed) -> None:
    """Between two drains, and with a namesake that stays."""
    cluster.make(JOBS, objects.job("net"))
    look(cluster.cache)
    cluster.drop(JOBS, "ml", "net")
    look(cluster.cache)
    (change,) = cluster.live.drain()[1].values()

    assert isinstance(change, Change)
    assert change.new is None
    assert cluster.live.index.jobs == {}


def test_a_list_that_replaces_everything_is_followed(cluster: Followed) -> None:
    """After a 410: what it lacks is gone, under the same names too."""
    cluster.make(JOBS, objects.job("net"))
    look(cluster.cache)
    cluster.live.drain()
    cluster.drop(JOBS, "ml", "net")
    cluster.drop(NODES, None, "n0")
    new = cluster.make(JOBS, objects.job("net"))
    cluster.make(NODES, objects.node("n0", 8))
    cluster.api.fake.compact()
    look(cluster.cache)  # meets the 410
    look(cluster.cache)
    cluster.live.drain()

    assert cluster.live.index.jobs["ml/net"].uid == new
    assert cluster.live.index.nodes["n0"].allocatable["cpu"] == 8000
