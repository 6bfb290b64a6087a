"""Real nodes beside kwok's: real containers with real signals, and a complete clean-up."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from e2e.cluster import build
from e2e.cluster.errors import ClusterError
from e2e.cluster.local import Cluster
from e2e.cluster.machine import sweeper
from e2e.cluster.machine.image import ContainerSettings, Entry, write
from e2e.cluster.nodes import node
from e2e.real_nodes import real_cluster, skip_unless_able
from e2e.waiting import until_true
from kube import request
from kube.client import Client
from kube.config import load
from kube.errors import KubeError, NotFound
from kube.request import NODES, PODS, SERVICES, Request

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # the first run builds the node's parts

ROOT = Path(__file__).parents[1]
NAMESPACE = "default"
IMAGE = "edl.local/test:1"
PORT = 8000
TRAINER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("leaving", flush=True), sys.exit(0)))
print(f"process {os.getpid()} of {os.environ['WHO']}", flush=True)
while True:
    time.sleep(60)
"""
SERVER = f"""
from http.server import HTTPServer, SimpleHTTPRequestHandler
HTTPServer(("", {PORT}), SimpleHTTPRequestHandler).serve_forever()
"""
IMPORTS = """
import importlib, os, sys, tempfile
import numpy, edl
for module in sys.argv[1:]:
    importlib.import_module(module)
print("user", os.getuid(), "sum", int(numpy.arange(5).sum()))
"""
ASK = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=10).status)
"""
ASK_API = """
import os, ssl, urllib.request
place = "/var/run/secrets/kubernetes.io/serviceaccount"
host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
asked = urllib.request.Request(
    f"https://{host}:{port}/version",
    headers={"Authorization": "Bearer " + open(f"{place}/token").read()},
)
context = ssl.create_default_context(cafile=f"{place}/ca.crt")
print(urllib.request.urlopen(asked, context=context, timeout=10).status)
"""
PARENT = """
import sys, time
from datetime import datetime
from pathlib import Path
from e2e.cluster.local import running

with running(Path(sys.argv[1]), real_nodes=1) as cluster:
    node = cluster.real_nodes["real-1"]
    print(node.pid, node.ends.device, flush=True)
    time.sleep(100)
"""
_RUN_S = 90.0
"""A container that failed twice starts again after ten seconds, then after twenty."""
_GRACE_S = 30.0
"""Grace period of a container that does not exit by itself."""
Printer = Callable[[str], None]


@pytest.fixture(scope="module", autouse=True)
def able() -> None:
    """Skips everything where the machine cannot run containers."""
    skip_unless_able()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two real nodes with an image that has Python, numpy and this project in it."""
    with real_cluster(tmp_path_factory.mktemp("nodes"), IMAGE) as started:
        yield started


@pytest.fixture
def api(cluster: Cluster) -> Iterator[Client]:
    """An administrator; all remaining pods are removed at the end."""
    with contextlib.closing(Client(load(cluster.admin), user_agent="edl-test-node")) as client:
        yield client
        for pod_ in orjson.loads(client.send(request.list_page(PODS, NAMESPACE)))["items"]:
            with contextlib.suppress(NotFound):
                name = pod_["metadata"]["name"]
                client.send(request.delete(PODS, NAMESPACE, name, grace_s=0))


def pod(name: str, where: str, program: str, *words: str) -> dict[str, Any]:
    """Returns a pod that runs a Python program on one of the real nodes."""
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": ["-c", program, *words],
        "env": [{"name": "WHO", "value": name}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": where},
            "containers": [container],
        },
    }


def status(api: Client, name: str) -> dict[str, Any]:
    """Returns a pod's status; empty if there is none."""
    try:
        stored_pod = orjson.loads(api.send(request.get(PODS, NAMESPACE, name)))
    except NotFound:
        return {}
    return dict(stored_pod["status"])


def phase(api: Client, name: str) -> str:
    """Its phase; "gone" if there is none."""
    return str(status(api, name).get("phase", "gone"))


def logs(api: Client, name: str) -> str:
    """Returns the log of a pod from its kubelet through the API server; empty without a kubelet."""
    path = request.path_of(PODS, NAMESPACE, name)
    try:
        return api.send(Request("GET", f"{path}/log")).decode()
    except KubeError:
        return ""


def run(api: Client, manifest: dict[str, Any]) -> str:
    """Runs a pod to its end; returns its log."""
    name = manifest["metadata"]["name"]
    api.send(request.create(PODS, NAMESPACE, manifest))
    until_true(lambda: phase(api, name) in ("Succeeded", "Failed"), _RUN_S)
    printed = logs(api, name)
    assert phase(api, name) == "Succeeded", printed
    return printed


def test_a_container_is_told_to_leave_and_leaves(api: Client, report: Printer) -> None:
    """It is process 1, its output is to be had while it runs, and SIGTERM ends it in time."""
    api.send(request.create(PODS, NAMESPACE, pod("leaves", "real-1", TRAINER)))
    ran_s = until_true(lambda: logs(api, "leaves") == "process 1 of leaves\n")
    following = request.path_of(PODS, NAMESPACE, "leaves") + "/log"
    with api.stream(Request("GET", following, query=(("follow", "true"),))) as lines:
        api.send(request.delete(PODS, NAMESPACE, "leaves"))
        gone_s = until_true(lambda: phase(api, "leaves") == "gone")
        printed = list(lines)

    report(f"pod prints {ran_s:.1f} s after its creation, and is gone {gone_s:.1f} s after SIGTERM")
    assert printed == [b"process 1 of leaves", b"leaving"]
    assert gone_s < _GRACE_S / 2


def test_sigterm_to_exit_takes_no_time(api: Client) -> None:
    """By the kubelet's own times: a program that leaves at SIGTERM ends with its exit code."""
    manifest = pod("exits", "real-2", TRAINER)
    manifest["metadata"]["finalizers"] = [
        "edl.training/test"
    ]  # so that its last status can be read
    api.send(request.create(PODS, NAMESPACE, manifest))
    until_true(lambda: logs(api, "exits") != "")
    asked_s = time.time()
    api.send(request.delete(PODS, NAMESPACE, "exits"))
    until_true(lambda: phase(api, "exits") == "Succeeded")
    ended = status(api, "exits")["containerStatuses"][0]["state"]["terminated"]
    api.send(request.merge_patch(PODS, NAMESPACE, "exits", {"metadata": {"finalizers": None}}))

    assert ended["exitCode"] == 0
    assert datetime.fromisoformat(ended["finishedAt"]).timestamp() - asked_s < _GRACE_S / 3


def test_the_image_has_the_project_in_it(api: Client) -> None:
    """Its packages, the SDK and numpy import for a user without rights on a read-only root."""
    manifest = pod(
        "imports", "real-1", IMPORTS, "master.__main__", "kube.client", "runtime.supervisor"
    )
    manifest["spec"]["containers"][0]["securityContext"] = {
        "runAsUser": 65532,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }

    assert run(api, manifest) == "user 65532 sum 10\n"


def test_a_service_leads_to_another_node(api: Client) -> None:
    """A pod reaches one of the other node by the Service's address."""
    api.send(request.create(PODS, NAMESPACE, pod("serves", "real-1", SERVER)))
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "serves"},
        "spec": {"selector": {"app": "serves"}, "ports": [{"port": 80, "targetPort": PORT}]},
    }
    service = orjson.loads(api.send(request.create(SERVICES, NAMESPACE, body)))
    until_true(lambda: phase(api, "serves") == "Running")
    asking = pod("asks", "real-2", ASK, f"http://{service['spec']['clusterIP']}/")
    asking["spec"]["restartPolicy"] = "OnFailure"  # kube-proxy may be a moment behind

    assert run(api, asking).endswith("200\n")
    api.send(request.delete(SERVICES, NAMESPACE, "serves"))


def test_a_pod_reaches_the_api_server(api: Client) -> None:
    """At the address in its environment, with its own token."""
    assert run(api, pod("client", "real-2", ASK_API)) == "200\n"


def test_kwok_nodes_are_beside_them(api: Client) -> None:
    """A pod is played on one and run on the other, in the same cluster."""
    api.send(request.create(NODES, None, node("played")))
    played, real = pod("played", "played", TRAINER), pod("real", "real-1", TRAINER)
    for node_pod in (played, real):
        api.send(request.create(PODS, NAMESPACE, node_pod))
    until_true(lambda: phase(api, "played") == phase(api, "real") == "Running")
    api.send(request.delete(NODES, None, "played"))

    assert status(api, "played")["podIP"].startswith("10.244.")
    assert status(api, "real")["podIP"].startswith("10.1")


def test_an_image_may_come_later(cluster: Cluster, api: Client, tmp_path: Path) -> None:
    """Every node has it then, though none had it when it started."""
    assert cluster.options.node_binaries is not None
    program = Entry("/wait", cluster.options.node_binaries.path("pause"), mode=0o755)
    name = "edl.local/late:1"
    cluster.load(write(tmp_path / "late.tar", name, [[program]], ContainerSettings(("/wait",))))
    for where in cluster.real_nodes:
        manifest = pod(f"late-{where}", where, "")
        manifest["spec"]["containers"][0] |= {"image": name, "args": []}
        api.send(request.create(PODS, NAMESPACE, manifest))

    until_true(lambda: {phase(api, f"late-{where}") for where in cluster.real_nodes} == {"Running"})


def test_what_a_node_lost_runs_on_another(cluster: Cluster, api: Client, report: Printer) -> None:
    """A node that loses power takes its containers with it; it comes back as it was."""
    lost = cluster.real_nodes["real-1"]
    api.send(request.create(PODS, NAMESPACE, pod("before", "real-1", TRAINER)))
    until_true(lambda: logs(api, "before") != "")
    lost.kill()
    with pytest.raises(ClusterError, match="real-1 does not run"):
        _ = lost.pid
    assert logs(api, "before") == ""
    api.send(request.delete(PODS, NAMESPACE, "before", grace_s=0))
    api.send(request.create(PODS, NAMESPACE, pod("after", "real-2", TRAINER)))
    took_s = until_true(lambda: logs(api, "after") != "")
    lost.start()
    assert run(api, pod("again", "real-1", "print('back')")) == "back\n"
    report(f"another node runs it {took_s:.1f} s later")


def test_nothing_of_a_node_survives_a_killed_parent(tmp_path: Path) -> None:
    """No process, interface, cgroup or file is left after SIGKILL of the starting process."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, device = parent.stdout.readline().split()
        cgroup = f"edl-e2e-{device.removeprefix('edl').partition('-')[0]}"
        assert sweeper.places(cgroup)
        os.kill(parent.pid, signal.SIGKILL)

    until_true(lambda: not Path("/proc", pid).exists())
    until_true(lambda: not Path("/sys/class/net", device).exists())
    until_true(lambda: not sweeper.places(cgroup))
    until_true(lambda: not (tmp_path / "nodes" / "real-1" / "lib").exists())
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def test_the_command_starts_real_nodes(tmp_path: Path) -> None:
    """They are in its status, have an image to try, and are gone after `down`."""
    environment = {**os.environ, "EDL_CACHE": str(tmp_path)}
    for folder in ("kubernetes", "nodes"):  # the usual binaries
        (tmp_path / folder).symlink_to(build.cache_root(os.environ) / folder)
    try:
        up = command(environment, "up", "--nodes", "1", "--real-nodes", "1")
        assert "edl.local/python:1" in up, up
        status = command(environment, "status")
        assert "real-1" in status
        assert "2 nodes" in status
    finally:
        down = command(environment, "down")
    assert down == "stopped\n"
    assert not (tmp_path / "run" / "cluster" / "nodes" / "real-1" / "lib").exists()


def command(environment: Mapping[str, str], *words: str) -> str:
    """What `python -m e2e.cluster` says to these words."""
    done = subprocess.run(
        [sys.executable, "-m", "e2e.cluster", *words],
        capture_output=True,
        text=True,
        timeout=200,
        env=dict(environment),
        cwd=ROOT,
        check=False,
    )
    return done.stdout
