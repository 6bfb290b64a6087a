"""Parameter servers in containers on real nodes: killed, deleted, and gone with their node.

All of EDL takes part: the plan places them, the reconciler makes them, the webhook names their image,
kubelets restart them, trainers find them by their Services, and the master ends the job.
"""

import base64
import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from e2e.environment import Environment, IsolatedNamespace
from e2e.real_nodes import real_environment
from e2e.waiting import until
from kube import request
from kube.errors import KubeError
from kube.request import JOBS, PODS, SECRETS, SERVICES
from policy.names import (
    ANNOTATION_MASTER,
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVER_MEMORY,
    ANNOTATION_SERVERS,
    Role,
)
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # the first run builds the node's parts

IMAGE = "edl.local/test-servers:1"
RECORDS = 3000
BATCH = 10
PORT = 8791
JOB = "line"
TRAINER = f"""
import time
import numpy as np
import edl, edl.servers

class Line:
    def initial(self):
        return {{"w": np.zeros(8, np.float32), "b": np.zeros(1, np.float32)}}
    def tables(self):
        return {{"shift": edl.servers.Table(1, 0.0)}}
    def optimizer(self):
        return {{"kind": "momentum", "learning_rate": 0.02}}
    def load(self, dense):
        self.dense = {{name: array.copy() for name, array in dense.items()}}
    def gradients(self, records, lookup):
        x, y, group = records
        ids, place = np.unique(group, return_inverse=True)
        error = x @ self.dense["w"] + self.dense["b"] + lookup("shift", ids)[place, 0] - y
        rows = np.zeros((len(ids), 1), np.float32)
        np.add.at(rows, (place, 0), 2 * error / len(y))
        dense = {{"w": 2 * x.T @ error / len(y), "b": 2 * error.mean(keepdims=True)}}
        time.sleep(0.1)
        return edl.servers.Gradients(dense, {{"shift": (ids, rows)}}, {{"loss": float((error ** 2).mean())}})

def report_step(step):
    print("version", step.version, "loss", step.metrics["loss"], flush=True)

random = np.random.default_rng(0)
x = random.normal(size=({RECORDS}, 8)).astype(np.float32)
group = random.integers(0, 5, {RECORDS})
y = (x @ np.arange(1, 9) + group).astype(np.float32)
data = edl.from_arrays("points", x, y, group)
result = edl.servers.train(Line(), data, {BATCH}, task_records={BATCH}, checkpoint_seconds=2.0, on_step=report_step)
print("finished", result.version, "lost", result.lost_steps, flush=True)
"""
BACK_S = 30.0
"""From the end of a server to the next batch that all servers take."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """Two real nodes with this project's image, with EDL beside them."""
    with real_environment(tmp_path_factory.mktemp("servers"), IMAGE) as prepared:
        yield prepared


class Training(IsolatedNamespace):
    """A job with two parameter servers and two trainers."""

    def submit_line(self) -> None:
        """Creates the Job as a user would."""
        annotations = {
            ANNOTATION_MIN: "2",
            ANNOTATION_MAX: "2",
            ANNOTATION_MASTER: "true",
            ANNOTATION_SERVERS: "2",
            ANNOTATION_SERVER_CPU: "50m",
            ANNOTATION_SERVER_MEMORY: "256Mi",
        }
        container = {
            "name": "main",
            "image": IMAGE,
            "command": ["python", "-c", TRAINER],
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        }
        spec = {"restartPolicy": "Never", "containers": [container]}
        body = {
            "metadata": {"name": JOB, "annotations": annotations},
            "spec": {"template": {"spec": spec}},
        }
        self.environment.send(request.create(JOBS, self.name, body))

    def pod(self, number: int) -> Any:
        """Returns a server's pod as it is; empty while there is none."""
        try:
            return self.environment.send(request.get(PODS, self.name, f"{JOB}-ps-{number}"))
        except KubeError:
            return {}

    def restarts(self, number: int) -> int:
        """How often a server's container was restarted in its pod."""
        statuses = self.pod(number).get("status", {}).get("containerStatuses", ())
        return sum(int(status["restartCount"]) for status in statuses)

    def address(self, number: int) -> str:
        """Returns the cluster IP of a server."""
        name = f"{JOB}-ps-{number}"
        service = self.environment.send(request.get(SERVICES, self.name, name))
        return str(service["spec"]["clusterIP"])

    def status(self, number: int) -> dict[str, Any]:
        """Returns the status of a server, requested at its pod's address; empty if it does not answer."""
        secret = self.environment.send(request.get(SECRETS, self.name, f"{JOB}-edl-master"))
        token = base64.b64decode(secret["data"]["token"]).decode()
        place = self.pod(number).get("status", {}).get("podIP", "")
        try:
            answer = urllib3.request(
                "GET",
                f"http://{place}:{PORT}/v1/status",
                headers={"Authorization": f"Bearer {token}"},
                timeout=2.0,
                retries=False,
            )
        except urllib3.exceptions.HTTPError:
            return {}
        return dict(answer.json()) if answer.status == 200 else {}

    def trained(self) -> dict[str, tuple[int, ...]]:
        """Trainer -> the versions in its log."""
        versions = {}
        for pod in self.trainers(JOB):
            if pod.role is Role.TRAINER and (text := self.log(pod.name)):
                numbers = re.findall(r"^version (\d+)", text, re.MULTILINE)
                versions[pod.name] = tuple(int(number) for number in numbers)
        return versions

    def steps(self) -> int:
        """Returns the batches that trainers report, including batches that were lost later."""
        return sum(len(versions) for versions in self.trained().values())

    def begin(self) -> None:
        """Returns when some is trained, and both servers have a checkpoint."""
        self.submit_line()
        until("it trains", self.steps, lambda count: count >= 20, 120)
        for number in range(2):
            until(
                f"server {number} has a checkpoint",
                lambda number=number: self.status(number).get("have"),  # type: ignore[misc]
                bool,
                60,
            )

    def goes_on(self) -> float:
        """Returns when more is trained; after how many seconds."""
        before, begun_s = self.steps(), clock.monotonic_s()
        until("more is trained", self.steps, lambda count: count >= before + 4, 180)
        return clock.monotonic_s() - begun_s

    def finish(self) -> None:
        """Waits until the master reports the job as complete, and all its pods are gone."""
        until("the job is over", lambda: self.job(JOB).finished, bool, 300)
        reasons = {c.type: c.reason for c in self.job(JOB).status.conditions}
        assert reasons.get("Complete") == "MasterSaysDone"
        until(
            "no server is left", lambda: [self.pod(n) for n in range(2)], lambda p: not any(p), 40
        )


@pytest.fixture
def namespace(namespace: IsolatedNamespace) -> Training:
    """The test's namespace, with its job."""
    return Training(namespace.environment, namespace.name)


def _process(job: str, number: int) -> int:
    """Returns the server's process, which is one of this machine."""
    words = [b"pserver", b"--index", str(number).encode(), b"--job", job.encode()]
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            arguments = file.read_bytes().split(b"\0")
            if all(word in arguments for word in words):
                return int(file.parent.name)
    raise AssertionError(f"server {number} has no process")


def test_a_killed_server_goes_on_in_place(namespace: Training) -> None:
    """After kill -9 the kubelet restarts it in its pod, with its address, from its checkpoint."""
    namespace.begin()
    pod, address = namespace.pod(0), namespace.address(0)
    os.kill(_process(JOB, 0), signal.SIGKILL)
    begun_s = clock.monotonic_s()
    until("it was restarted", lambda: namespace.restarts(0), lambda count: count == 1, 30)
    restored = until(
        "it serves", lambda: namespace.status(0), lambda status: bool(status.get("ready")), 30
    )
    served_s = clock.monotonic_s() - begun_s
    namespace.goes_on()
    took_s = clock.monotonic_s() - begun_s
    print(
        f"a killed server serves again after {served_s:.1f} s, training continues after {took_s:.1f} s"
    )
    print(f"as it serves again: {restored}")
    after = namespace.pod(0)

    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["podIP"] == pod["status"]["podIP"]
    assert namespace.address(0) == address
    assert restored["version"] > 0
    assert took_s < BACK_S
    assert namespace.restarts(1) == 0
    namespace.finish()


def test_a_deleted_server_comes_back(namespace: Training) -> None:
    """Another pod under its name and address; its own checkpoints are gone with the volume."""
    namespace.begin()
    before, address = namespace.pod(1)["metadata"]["uid"], namespace.address(1)
    begun_s = clock.monotonic_s()
    namespace.environment.send(request.delete(PODS, namespace.name, f"{JOB}-ps-1"))
    until(
        "another serves",
        lambda: (
            namespace.pod(1).get("metadata", {}).get("uid", before) != before
            and namespace.status(1).get("ready")
        ),
        bool,
        60,
    )
    namespace.goes_on()
    print(f"training continued {clock.monotonic_s() - begun_s:.1f} s after a server was deleted")

    assert namespace.address(1) == address
    namespace.finish()


def test_a_server_outlives_its_node(namespace: Training) -> None:
    """Once its node is declared not ready it comes back on the other one."""
    namespace.begin()
    lost = namespace.pod(0)["spec"]["nodeName"]
    before = {n: namespace.pod(n)["metadata"]["uid"] for n in range(2)}
    nodes = namespace.environment.cluster.real_nodes
    nodes[lost].kill()
    try:
        begun_s = clock.monotonic_s()
        namespace.environment.declare_lost(lost)

        def elsewhere() -> bool:
            pods = [namespace.pod(number) for number in range(2)]
            return all(pod and pod["spec"].get("nodeName") not in ("", None, lost) for pod in pods)

        until("all servers are on the other node", elsewhere, bool, 60)
        until(
            "they serve", lambda: all(namespace.status(n).get("ready") for n in range(2)), bool, 90
        )
        print(f"servers of a lost node serve elsewhere after {clock.monotonic_s() - begun_s:.1f} s")
    finally:
        nodes[lost].start()

    assert namespace.pod(0)["metadata"]["uid"] != before[0]
    namespace.finish()
