"""An index that follows a cluster, drained by its owner."""

from typing import Any

import pytest

from kube import request
from kube.cache import ClusterCache
from kube.object_change import ObjectChange
from kube.request import JOBS, NODES, PODS
from kube.state_feed import ClusterStateFeed
from policy.document.model import Policy
from policy.document.queue_model import Overcommit, Queue
from tests.reconciler import objects
from tests.reconciler.server import Clock, Instant, look


class Followed:
    """A cluster in memory with a state feed."""

    def __init__(self) -> None:
        self.api = Instant(Clock())
        self.cache = ClusterCache(self.api)
        self.feed = ClusterStateFeed(self.cache)

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
    """A cluster of one node."""
    followed = Followed()
    followed.make(NODES, objects.node("n0", 18))
    return followed


def test_what_is_there_arrives_with_the_first_drain(cluster: Followed) -> None:
    """Everything of the first lists, as new."""
    pod = cluster.make(PODS, objects.pod("web", nodeName="n0"))
    job = cluster.make(JOBS, objects.job("net"))
    look(cluster.cache)
    pods, jobs = cluster.feed.drain()

    assert [(c.last, c.new and c.new.name) for c in pods.values()] == [(None, "web")]
    assert (set(pods), set(jobs)) == ({pod}, {job})
    assert cluster.feed.cluster.free("n0")["cpu"] == 15_000
    assert "ml/net" in cluster.feed.cluster.jobs


def test_a_listener_that_comes_late_misses_nothing(cluster: Followed) -> None:
    """The watches may have run before."""
    look(cluster.cache)
    late = ClusterStateFeed(cluster.cache)
    late.drain()

    assert set(late.cluster.nodes) == {"n0"}


def test_the_index_stands_still_between_drains(cluster: Followed) -> None:
    """A plan reads it meanwhile."""
    look(cluster.cache)
    cluster.feed.drain()
    cluster.make(PODS, objects.pod("web", nodeName="n0"))
    look(cluster.cache)

    assert cluster.feed.cluster.pods == {}
    assert cluster.feed.drain()[0] != {}
    assert cluster.feed.drain() == ({}, {})


def test_of_several_changes_the_newest_counts(cluster: Followed) -> None:
    """`last` is the record before the newest."""
    uid = cluster.make(PODS, objects.pod("web"))
    look(cluster.cache)
    cluster.bind("web", "n0")
    cluster.api.ask(
        request.merge_patch(
            PODS, "shop", "web", {"status": {"phase": "Running"}}, subresource="status"
        )
    )
    look(cluster.cache)
    change = cluster.feed.drain()[0][uid]

    assert change.last is not None
    assert change.new is not None
    assert (change.last.node, change.last.phase) == ("n0", "Pending")
    assert change.new.phase == "Running"


def test_a_pod_that_came_and_went_is_known_by_its_last_record(cluster: Followed) -> None:
    """Its end must still be counted."""
    look(cluster.cache)
    uid = cluster.make(PODS, objects.pod("web"))
    cluster.drop(PODS, "shop", "web")
    look(cluster.cache)
    change = cluster.feed.drain()[0][uid]

    assert change.last is not None
    assert (change.last.name, change.new) == ("web", None)
    assert cluster.feed.cluster.pods == {}


def test_nodes_come_and_go(cluster: Followed) -> None:
    """A node recreated under its name is in the state."""
    look(cluster.cache)
    cluster.feed.drain()
    cluster.drop(NODES, None, "n0")
    look(cluster.cache)
    cluster.feed.drain()
    nodes_after_drop = dict(cluster.feed.cluster.nodes)
    cluster.make(NODES, objects.node("n0", 4))
    cluster.drop(NODES, None, "n0")
    cluster.make(NODES, objects.node("n0", 8))
    look(cluster.cache)
    cluster.feed.drain()

    assert nodes_after_drop == {}
    assert cluster.feed.cluster.nodes["n0"].allocatable["cpu"] == 8000


@pytest.mark.parametrize("between", [True, False])
def test_a_job_made_again_is_another_job(cluster: Followed, *, between: bool) -> None:
    """The deletion of the old Job does not drop the new one, whether drained before or not."""
    old = cluster.make(JOBS, objects.job("net"))
    look(cluster.cache)
    cluster.feed.drain()
    cluster.drop(JOBS, "ml", "net")
    if between:
        look(cluster.cache)
        cluster.feed.drain()
        assert cluster.feed.cluster.jobs == {}
    new = cluster.make(JOBS, objects.job("net"))
    look(cluster.cache)
    jobs = cluster.feed.drain()[1]

    assert cluster.feed.cluster.jobs["ml/net"].uid == new
    assert jobs[new].new is not None
    assert (old in jobs) is not between


def test_a_job_that_came_and_went_leaves_nothing(cluster: Followed) -> None:
    """Between two drains, and with a namesake that stays."""
    cluster.make(JOBS, objects.job("net"))
    look(cluster.cache)
    cluster.drop(JOBS, "ml", "net")
    look(cluster.cache)
    (change,) = cluster.feed.drain()[1].values()

    assert isinstance(change, ObjectChange)
    assert change.new is None
    assert cluster.feed.cluster.jobs == {}


def test_a_list_that_replaces_everything_is_followed(cluster: Followed) -> None:
    """After a 410, objects missing in the new list are dropped, also under reused names."""
    cluster.make(JOBS, objects.job("net"))
    look(cluster.cache)
    cluster.feed.drain()
    cluster.drop(JOBS, "ml", "net")
    cluster.drop(NODES, None, "n0")
    new = cluster.make(JOBS, objects.job("net"))
    cluster.make(NODES, objects.node("n0", 8))
    cluster.api.fake.compact()
    look(cluster.cache)  # meets the 410
    look(cluster.cache)
    cluster.feed.drain()

    assert cluster.feed.cluster.jobs["ml/net"].uid == new
    assert cluster.feed.cluster.nodes["n0"].allocatable["cpu"] == 8000


def test_ignored_resources_are_in_no_request(cluster: Followed) -> None:
    """Of pods and jobs, those there and those to come; no longer ignored, they count again."""
    cluster.make(PODS, _with_memory_of_gpu(objects.pod("web", nodeName="n0")))
    job = objects.job("net")
    _with_memory_of_gpu({"spec": job["spec"]["template"]["spec"]})
    cluster.make(JOBS, job)
    look(cluster.cache)
    cluster.feed.drain()
    before = _requesting(cluster)
    cluster.feed.follow(Policy(ignored_resources=("nvidia.com/gpumem",)))
    cluster.make(PODS, _with_memory_of_gpu(objects.pod("web-2", nodeName="n0")))
    look(cluster.cache)
    cluster.feed.drain()
    meanwhile = _requesting(cluster)
    cluster.feed.follow(Policy())

    assert before == {"web", "net"}
    assert meanwhile == set()
    assert _requesting(cluster) == {"web", "web-2", "net"}
    assert cluster.feed.cluster.free("n0")["cpu"] == 12_000


def test_jobs_follow_the_queues_of_the_policy(cluster: Followed) -> None:
    """Also those that are there already, and back again when the policy changes."""
    cluster.make(JOBS, objects.job("net"))
    look(cluster.cache)
    cluster.feed.drain()
    queues = []
    for listed in ((Queue(name="own", namespaces=("*",), default=True),), ()):
        cluster.feed.follow(Policy(queues=listed))
        queues.append([job.queue for job in cluster.feed.cluster.jobs.values()])

    assert queues == [["own"], [""]]


def test_trainers_request_less_where_the_policy_overcommits(cluster: Followed) -> None:
    """Jobs that are there already follow, and their pod template, of which trainers are made."""
    cluster.make(JOBS, objects.job("net", cpu=3))
    look(cluster.cache)
    cluster.feed.drain()
    plain = cluster.feed.cluster.jobs["ml/net"]
    rule = Overcommit(queues=("own",), trainers={"cpu": 1.5})
    queue = Queue(name="own", namespaces=("*",), default=True)

    cluster.feed.follow(Policy(queues=(queue,), overcommit=(rule,)))
    lowered = cluster.feed.cluster.jobs["ml/net"]
    cluster.make(JOBS, objects.job("later", cpu=6))
    look(cluster.cache)
    cluster.feed.drain()
    later = cluster.feed.cluster.jobs["ml/later"]
    cluster.feed.follow(Policy())

    assert (lowered.requests["cpu"], lowered.limits) == (2000, {"cpu": 3000})
    assert b'"requests":{"cpu":"2"},"limits":{"cpu":"3' in lowered.template_json
    assert (later.requests["cpu"], later.limits) == (4000, {"cpu": 6000})
    assert cluster.feed.cluster.jobs["ml/net"] == plain
    assert cluster.feed.cluster.jobs["ml/net"].template_json == plain.template_json


def _with_memory_of_gpu(body: dict[str, Any]) -> dict[str, Any]:
    body["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpumem"] = "3000"
    return body


def _requesting(cluster: Followed) -> set[str]:
    state = cluster.feed.cluster
    pods = {pod.name for pod in state.pods.values() if "nvidia.com/gpumem" in pod.requests}
    return pods | {job.name for job in state.jobs.values() if "nvidia.com/gpumem" in job.requests}
