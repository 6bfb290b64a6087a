"""The local cluster itself: starting, pods' lives, restarts, and that nothing outlives it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from e2e.cluster.components import COMPONENTS, SchedulerOptions
from e2e.cluster.errors import ClusterError
from e2e.cluster.local import Cluster, running
from e2e.cluster.nodes import node
from e2e.waiting import until_true
from kube import request
from kube.client import Client
from kube.config import load
from kube.errors import Forbidden, NotFound
from kube.request import JOBS, NODES, PODS, REPLICASETS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[1]
NAMESPACE = "default"
NODE_COUNT = 20
PARENT = """
import sys, time
from pathlib import Path
from e2e.cluster.components import COMPONENTS
from e2e.cluster.local import running

with running(Path(sys.argv[1])) as cluster:
    print(*(cluster.pid(name) for name in COMPONENTS), flush=True)
    time.sleep(100)
"""
Printer = Callable[[str], None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster with nodes for all tests here."""
    with (
        running(tmp_path_factory.mktemp("cluster")) as started,
        contextlib.closing(api_of(started)) as api,
    ):
        for number in range(NODE_COUNT):
            api.send(request.create(NODES, None, node(f"node-{number:02}")))
        yield started


@pytest.fixture
def api(cluster: Cluster) -> Iterator[Client]:
    """An administrator."""
    with contextlib.closing(api_of(cluster)) as client:
        yield client


def api_of(cluster: Cluster) -> Client:
    """Returns a client of the administrator's."""
    return Client(load(cluster.admin), user_agent="edl-test-cluster")


def pod(name: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Returns a pod with a sidecar and an init container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": spec(),
    }


def spec() -> dict[str, Any]:
    """What every pod here is made of."""
    return {
        "restartPolicy": "Never",
        "initContainers": [
            {"name": "sidecar", "image": "none", "restartPolicy": "Always"},
            {"name": "setup", "image": "none"},
        ],
        "containers": [
            {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
        ],
    }


def read(api: Client, name: str) -> dict[str, Any]:
    """Returns the pod as it is; empty if there is none."""
    try:
        stored_pod: dict[str, Any] = orjson.loads(api.send(request.get(PODS, NAMESPACE, name)))
    except NotFound:
        return {}
    return stored_pod


def phase(api: Client, name: str) -> str:
    """Its phase; "gone" if there is none."""
    stored_pod = read(api, name)
    return str(stored_pod["status"]["phase"]) if stored_pod else "gone"


def alive(pids: Sequence[int]) -> list[int]:
    """Returns the processes that still run."""
    living = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            living.append(pid)
    return living


def test_it_starts_in_seconds(tmp_path: Path, report: Printer) -> None:
    """From nothing to the first pod Running, and down again, with every log kept."""
    began_s = time.monotonic()
    with running(tmp_path) as cluster, contextlib.closing(api_of(cluster)) as api:
        ready_s = time.monotonic() - began_s
        api.send(request.create(NODES, None, node("only")))
        api.send(request.create(PODS, NAMESPACE, pod("first")))
        until_true(lambda: phase(api, "first") == "Running")
        report(f"cluster ready after {ready_s:.1f} s, first pod {time.monotonic() - began_s:.1f} s")
        pids = [cluster.pid(name) for name in COMPONENTS]
        assert all(cluster.log(name).exists() for name in COMPONENTS)

    assert alive(pids) == []


def test_a_running_pod_looks_like_one_of_a_kubelet(api: Client) -> None:
    """Ready, with address and start time; the sidecar runs and the init container is done."""
    api.send(request.create(PODS, NAMESPACE, pod("looks")))
    until_true(lambda: phase(api, "looks") == "Running")
    status = read(api, "looks")["status"]
    conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}

    assert conditions["Ready"] == conditions["PodScheduled"] == "True"
    assert status["podIP"].startswith("10.244.")
    assert status["hostIP"] == "127.0.0.1"
    assert status["startTime"]
    assert "running" in status["containerStatuses"][0]["state"]
    sidecar, setup = status["initContainerStatuses"]
    assert sidecar["started"]
    assert "running" in sidecar["state"]
    assert setup["state"]["terminated"]["exitCode"] == 0


@pytest.mark.parametrize(
    ("name", "stop_time", "grace_s", "min_s", "exit_code"),
    [("stops", "700ms", 30, 0.6, 143), ("hangs", "1m", 1, 0.9, 137)],
)
def test_a_deleted_pod_fails_before_it_goes(
    *, api: Client, name: str, stop_time: str, grace_s: int, min_s: float, exit_code: int
) -> None:
    """After its stop time, or killed after its grace: phase Failed is the last that is seen."""
    manifest = pod(name, {"edl.training/kwok-stop-time": stop_time})
    manifest["spec"]["terminationGracePeriodSeconds"] = grace_s
    api.send(request.create(PODS, NAMESPACE, manifest))
    until_true(lambda: phase(api, name) == "Running")
    version = read(api, name)["metadata"]["resourceVersion"]
    began_s = time.monotonic()  # before the API server notes the deletion, from which it counts
    api.send(request.delete(PODS, NAMESPACE, name))
    until_true(lambda: phase(api, name) == "gone")
    took_s = time.monotonic() - began_s
    watch = request.watch(
        PODS,
        NAMESPACE,
        resource_version=version,
        timeout_s=30,
        field_selector=f"metadata.name={name}",
    )
    with api.stream(watch) as stream:
        events = map(orjson.loads, stream)
        last = next(event["object"] for event in events if event["type"] == "DELETED")

    assert min_s <= took_s <= 20.0  # less than the stop time of the one, and the grace of the other
    assert last["status"]["phase"] == "Failed"
    ended = last["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (exit_code, "Error")


def test_a_change_does_not_prolong_a_run_time(api: Client) -> None:
    """The time counts from the start, though kwok re-evaluates at every change."""
    run_s = 6.0
    began_s = time.monotonic()
    run_time = {"edl.training/kwok-run-time": f"{run_s:.0f}s"}
    api.send(request.create(PODS, NAMESPACE, pod("timed", run_time)))
    until_true(lambda: phase(api, "timed") == "Running")
    time.sleep(4.0)
    changed_s = time.monotonic()
    label = {"metadata": {"labels": {"changed": "yes"}}}
    api.send(request.merge_patch(PODS, NAMESPACE, "timed", label))
    until_true(lambda: phase(api, "timed") == "Succeeded")
    ended_s = time.monotonic()

    assert ended_s - began_s >= run_s
    assert ended_s - changed_s < run_s  # it would run so long again


def test_a_pending_pod_under_deletion_is_removed(api: Client) -> None:
    """One that fits nowhere has nothing to stop."""
    big = pod("pending")
    big["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1000"
    api.send(request.create(PODS, NAMESPACE, big))
    api.send(request.delete(PODS, NAMESPACE, "pending"))

    until_true(lambda: phase(api, "pending") == "gone")


def test_jobs_end_when_their_pods_say_so(api: Client) -> None:
    """A run time makes the built-in controller complete the Job; fail-after lets it fail."""
    for name, annotation in (("good", "kwok-run-time"), ("bad", "kwok-fail-after")):
        template = {
            "metadata": {"annotations": {f"edl.training/{annotation}": "1s"}},
            "spec": spec(),
        }
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"backoffLimit": 0, "template": template},
        }
        api.send(request.create(JOBS, NAMESPACE, body))

    def ended(name: str) -> set[str]:
        status = orjson.loads(api.send(request.get(JOBS, NAMESPACE, name)))["status"]
        return {condition["type"] for condition in status.get("conditions", [])}

    until_true(lambda: "Complete" in ended("good"))
    until_true(lambda: "Failed" in ended("bad"))


def test_bursts_are_played_fast(api: Client, report: Printer) -> None:
    """A ReplicaSet of 300 comes up whole; the rate is reported."""
    template = {
        "metadata": {"labels": {"app": "burst"}},
        "spec": {"containers": spec()["containers"]},
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "burst"},
        "spec": {
            "replicas": 300,
            "selector": {"matchLabels": {"app": "burst"}},
            "template": template,
        },
    }
    api.send(request.create(REPLICASETS, NAMESPACE, body))

    def ready() -> int:
        status = orjson.loads(api.send(request.get(REPLICASETS, NAMESPACE, "burst")))["status"]
        return int(status.get("readyReplicas", 0))

    took_s = until_true(lambda: ready() == 300, 60.0)
    report(f"300 pods Running after {took_s:.1f} s ({300 / took_s:.0f} pods/s)")
    api.send(request.delete(REPLICASETS, NAMESPACE, "burst"))


def test_users_have_the_rights_that_rbac_gives_them(cluster: Cluster) -> None:
    """A service account without a binding may not list pods, and a group may carry the right."""
    user = "system:serviceaccount:default:nobody"
    with (
        contextlib.closing(Client(load(cluster.kubeconfig(user)))) as nobody,
        pytest.raises(Forbidden, match=user),
    ):
        nobody.send(request.list_page(PODS, NAMESPACE))
    with contextlib.closing(Client(load(cluster.kubeconfig("ann", ("system:masters",))))) as ann:
        assert ann.send(request.list_page(PODS, NAMESPACE))


def test_the_api_server_comes_back_with_its_data(cluster: Cluster, api: Client) -> None:
    """Killed and started: same address, same objects, and pods are scheduled again."""
    api.send(request.create(PODS, NAMESPACE, pod("before")))
    until_true(lambda: phase(api, "before") == "Running")
    url, old = cluster.url, cluster.pid("kube-apiserver")
    cluster.kill("kube-apiserver")
    assert alive([old]) == []
    cluster.start("kube-apiserver")
    with pytest.raises(ClusterError, match="runs already"):
        cluster.start("kube-apiserver")

    assert cluster.url == url
    assert phase(api, "before") == "Running"
    api.send(request.create(PODS, NAMESPACE, pod("after")))
    until_true(lambda: phase(api, "after") == "Running")


def test_the_scheduler_takes_another_configuration(cluster: Cluster, api: Client) -> None:
    """With other profiles only the scheduler they name is there; back again, all is as before."""
    other = SchedulerOptions({"profiles": [{"schedulerName": "other"}]})
    cluster.configure_scheduler(other)
    named = pod("named")
    named["spec"]["schedulerName"] = "other"
    api.send(request.create(PODS, NAMESPACE, pod("usual")))
    api.send(request.create(PODS, NAMESPACE, named))
    until_true(lambda: phase(api, "named") == "Running")
    assert phase(api, "usual") == "Pending"
    cluster.configure_scheduler(SchedulerOptions())

    until_true(lambda: phase(api, "usual") == "Running")


def test_bad_options_are_quoted(tmp_path: Path) -> None:
    """A flag that the API server does not know: its own words, and the log."""
    with (
        pytest.raises(
            ClusterError, match=r"kube-apiserver ended .*--nonsense.*kube-apiserver\.log"
        ),
        running(tmp_path, apiserver_args=("--nonsense=1",)),
    ):
        pass


def test_nothing_survives_a_killed_parent(tmp_path: Path) -> None:
    """SIGKILL leaves it no time to stop anything; everything is gone within moments."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(alive(pids)) == len(COMPONENTS)
        parent.send_signal(signal.SIGKILL)

    until_true(lambda: alive(pids) == [], 20.0)


def test_the_command_starts_and_stops_a_cluster(tmp_path: Path) -> None:
    """up, up again, status, kubectl, and down, in a cache of its own with the same binaries."""
    usual = Path(command(os.environ, "build").stdout.strip())
    (tmp_path / "kubernetes").mkdir()
    (tmp_path / "kubernetes" / usual.name).symlink_to(usual)
    environment = {**os.environ, "EDL_CACHE": str(tmp_path)}
    try:
        assert "is up after" in command(environment, "up", "--nodes", "3").stdout
        assert "it runs already" in command(environment, "up").stdout
        assert "3 nodes" in command(environment, "status").stdout
        kubeconfig = command(environment, "kubeconfig").stdout.strip()
        kubectl = [str(usual / "kubectl"), "--kubeconfig", kubeconfig, "get", "nodes", "-o", "name"]
        nodes = subprocess.run(kubectl, capture_output=True, text=True, timeout=30, check=True)
        assert nodes.stdout.split() == ["node/node-000", "node/node-001", "node/node-002"]
    finally:
        down = command(environment, "down")
    assert down.stdout == "stopped\n"
    assert command(environment, "status").returncode == 1


def command(environment: Mapping[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    """`python -m e2e.cluster` with these words."""
    return subprocess.run(
        [sys.executable, "-m", "e2e.cluster", *words],
        capture_output=True,
        text=True,
        timeout=100,
        env=dict(environment),
        cwd=ROOT,
        check=False,
    )
