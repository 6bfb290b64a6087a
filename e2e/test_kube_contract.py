"""The contract of an API server on a real one: the fake behaves like it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from uuid import uuid4

import orjson
import pytest

from e2e.cluster.local import Cluster, running
from e2e.control_plane import SERVICE_ACCOUNTS
from kube import config, decode, errors, request
from kube.cache import ClusterCache
from kube.client import Client
from kube.lease import Elector
from kube.reflector import Reflector
from kube.request import CONFIGMAPS, JOBS, NAMESPACES, PODS, Request
from policy.names import ANNOTATION_MAX, ANNOTATION_MIN
from tests.kube.contract import ApiContract
from tests.kube.contract.server import ask, make_config, make_pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

_CHANGE_S = 20.0
_JOIN_S = 5.0
"""How long a stop waits for a thread that does not end."""
_LEASE_S, _RENEW_S, _RETRY_S = 15.0, 10.0, 0.2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One control plane for all of this file."""
    with running(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[Client]:
    """An administrator."""
    client = Client(config.load(cluster.admin), user_agent="edl-contract")
    yield client
    client.close()


def _wait_for(client: Client, api_request: Request) -> None:
    while True:
        try:
            client.send(api_request)
        except errors.NotFound:
            time.sleep(0.05)
        else:
            return


@pytest.fixture
def fresh(client: Client) -> Iterator[str]:
    """A namespace that Kubernetes has finished: pods may be created, no more writes of its own."""
    name = f"contract-{uuid4().hex[:8]}"
    client.send(request.create(NAMESPACES, None, {"metadata": {"name": name}}))
    for kind, object_name in ((SERVICE_ACCOUNTS, "default"), (CONFIGMAPS, "kube-root-ca.crt")):
        _wait_for(client, request.get(kind, name, object_name))
    yield name
    client.send(request.delete(NAMESPACES, None, name))


class TestReal(ApiContract):
    """The facts of the contract, on kube-apiserver."""

    @pytest.fixture
    def api(self, client: Client) -> Client:
        """The real one."""
        return client

    @pytest.fixture
    def namespace(self, fresh: str) -> str:
        """One that exists."""
        return fresh

    @pytest.fixture
    def forget_history(self, cluster: Cluster) -> Callable[[], None]:
        """A new kube-apiserver process remembers no events from before it started."""

        def restart() -> None:
            cluster.kill("kube-apiserver")
            cluster.start("kube-apiserver")

        return restart


def test_a_dry_run_shows_defaults_and_refusals_and_uses_no_quota(
    client: Client, fresh: str
) -> None:
    """A LimitRange's requests are in the answer; a quota refuses what exceeds it, and counts none."""
    ranges = request.Resource("", "v1", "limitranges", "LimitRange")
    quotas = request.Resource("", "v1", "resourcequotas", "ResourceQuota")
    default = {"type": "Container", "defaultRequest": {"cpu": "500m"}}
    client.send(
        request.create(ranges, fresh, {"metadata": {"name": "r"}, "spec": {"limits": [default]}})
    )
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "600m"}}}
    client.send(request.create(quotas, fresh, quota))
    while not (ask(client, request.get(quotas, fresh, "q")).get("status") or {}).get("hard"):
        time.sleep(0.05)

    def dry_run(**resources: dict[str, str]) -> Request:
        main = {"name": "main", "image": "none", "resources": resources}
        body = {"metadata": {"name": "p"}, "spec": {"containers": [main]}}
        return request.create(PODS, fresh, body, dry_run=True)

    def requested() -> int:
        return decode.pod(ask(client, dry_run())).requests["cpu"]

    while True:  # the LimitRange's cache may be a moment behind
        with suppress(errors.Forbidden):
            requested()
            break
    assert (requested(), requested()) == (500, 500)
    with pytest.raises(errors.Forbidden, match="exceeded quota") as caught:
        client.send(dry_run(requests={"cpu": "700m"}))
    assert errors.is_refusal(caught.value)
    with pytest.raises(errors.NotFound):
        client.send(request.get(PODS, fresh, "p"))
    assert ask(client, request.get(quotas, fresh, "q"))["status"]["used"] == {"requests.cpu": "0"}


def test_the_cache_follows_a_real_cluster(client: Client, fresh: str) -> None:
    """Pods and elastic jobs appear, and leave again; a stop waits for no watch."""
    cache = ClusterCache(client)
    cache.start()
    try:
        assert cache.changes.wait_for(lambda: cache.synced, 10)
        bounds = {ANNOTATION_MIN: "1", ANNOTATION_MAX: "3"}
        main = {"name": "main", "image": "none", "resources": {"limits": {"cpu": "2"}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [main]}}
        job = {
            "metadata": {"name": "j", "annotations": bounds},
            "spec": {"managedBy": "edl.training/reconciler", "template": template},
        }
        client.send(request.create(JOBS, fresh, job))
        make_pod(client, fresh, "p")
        assert cache.changes.wait_for(
            lambda: any(pod.namespace == fresh for pod in cache.pods.records()), _CHANGE_S
        )
        assert cache.changes.wait_for(lambda: len(cache.jobs.records()) == 1, _CHANGE_S)
        (decoded_job,) = cache.jobs.records()

        assert (decoded_job.error, decoded_job.managed, decoded_job.max_trainers) == ("", True, 3)
        assert decoded_job.requests == {"cpu": 2000, "pods": 1}

        client.send(request.delete(PODS, fresh, "p"))
        client.send(request.delete(JOBS, fresh, "j"))
        assert cache.changes.wait_for(
            lambda: (
                not cache.jobs.records()
                and not any(pod.namespace == fresh for pod in cache.pods.records())
            ),
            _CHANGE_S,
        )
    finally:
        begun_s = time.monotonic()
        cache.stop()
    assert time.monotonic() - begun_s < _JOIN_S


def test_a_reflector_survives_a_killed_api_server(
    cluster: Cluster, client: Client, fresh: str
) -> None:
    """After kill -9 and with a new process: it catches up without anybody's help."""
    reflector = Reflector(
        client, CONFIGMAPS, lambda obj: str(obj["metadata"]["name"]), namespace=fresh
    )
    reflector.start()
    try:
        assert reflector.changes.wait_for(lambda: reflector.synced, 10)
        make_config(client, fresh, "before")
        cluster.kill("kube-apiserver")
        cluster.start("kube-apiserver")
        make_config(client, fresh, "after")

        assert reflector.changes.wait_for(
            lambda: {"before", "after"} <= set(reflector.records()), 30
        )
        assert reflector.counts.errors.get("internal", 0) == 0
    finally:
        reflector.stop()
    assert not [t for t in threading.enumerate() if t.name == "watch-configmaps"]


def test_leadership_is_handed_over_on_a_real_lease(client: Client, fresh: str) -> None:
    """A clean stop gives it to the other before it expires; no holder is left behind."""
    first, two = (
        Elector(client, fresh, "l", name, lease_s=_LEASE_S, renew_s=_RENEW_S, retry_s=_RETRY_S)
        for name in "ab"
    )
    first.start()
    try:
        wait_until(lambda: first.is_leader)
        two.start()
        time.sleep(0.5)
        assert (first.is_leader, two.is_leader) == (True, False)
        first.stop()
        begun_s = time.monotonic()
        wait_until(lambda: two.is_leader)
        took_s = time.monotonic() - begun_s
    finally:
        first.stop()
        two.stop()
    lease = ask(client, request.get(request.LEASES, fresh, "l"))

    assert took_s < _LEASE_S / 2
    assert "holderIdentity" not in lease["spec"]
    assert lease["spec"]["leaseTransitions"] == 1


def test_a_bookmark_comes_before_a_watch_ends(client: Client, fresh: str) -> None:
    """So a quiet watch that ends in the regular way continues from a recent version.

    The server tries in a watch's last 2 s and promises nothing: a busy one may miss them.
    """
    page = ask(client, request.list_page(CONFIGMAPS, fresh))
    version = page["metadata"]["resourceVersion"]
    watch_request = request.watch(CONFIGMAPS, fresh, resource_version=version, timeout_s=6)
    kinds: set[str] = set()
    while "BOOKMARK" not in kinds:  # else the test's timeout
        with client.stream(watch_request) as stream:
            kinds |= {orjson.loads(line)["type"] for line in stream}


def wait_until(predicate: Callable[[], bool]) -> None:
    """Fails by the test's timeout."""
    while not predicate():
        time.sleep(0.01)
