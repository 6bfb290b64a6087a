"""A job's master and its trainers as containers: pods and nodes go, and no record is lost.

Without webhook and reconciler: the pods are written out here, as EDL would make them.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import orjson
import pytest
import urllib3

from e2e.cluster.local import Cluster
from e2e.real_nodes import real_cluster
from e2e.waiting import until, until_true
from kube import request
from kube.client import Client
from kube.config import load
from kube.errors import KubeError
from kube.request import NAMESPACES, PODS, ROLEBINDINGS, SERVICES, Request

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # the first run builds the node's parts

IMAGE = "edl.local/test-master:1"
TOKEN = "a-token-of-the-journey"  # noqa: S105 - of a cluster that lives for a minute
PORT = 8790
RECORDS = 600
TASK = 10
FIRST, SECOND = "real-1", "real-2"
TRAINER = f"""
import sys, time
import edl
data = edl.from_function("numbers", lambda number: number, {RECORDS})
for batch in edl.batches(data, {TASK}, task_records={TASK}):
    time.sleep(0.25)
    print("trained", *batch, flush=True)
    print("at", time.time(), flush=True)
print("finished", flush=True)
"""
_WAIT_S = 300.0
Printer = Callable[[str], None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two real nodes that have this project's image."""
    with real_cluster(tmp_path_factory.mktemp("master"), IMAGE) as started:
        yield started


class Training:
    """The pods of one job in a separate namespace."""

    def __init__(self, api: Client, name: str) -> None:
        self.api = api
        self.namespace = name
        api.send(request.create(NAMESPACES, None, {"metadata": {"name": name}}))
        body: dict[str, Any] = {
            "metadata": {"name": "master"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "edit",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": name}],
        }
        api.send(request.create(ROLEBINDINGS, name, body))
        service = {
            "metadata": {"name": "master"},
            "spec": {"selector": {"app": "master"}, "ports": [{"port": PORT}]},
        }
        created = orjson.loads(api.send(request.create(SERVICES, name, service)))
        self.address = f"http://{created['spec']['clusterIP']}:{PORT}"
        self.masters = 0

    def master(self, node: str) -> str:
        """Starts a master on a node; its pod's name."""
        self.masters += 1
        name = f"master-{self.masters}"
        words = ["--listen", f":{PORT}", "--journal", "/journal/books"]
        words += ["--snapshot-configmap", f"{self.namespace}/books"]
        self._create(name, node, ["-m", "master", *words], app="master")
        return name

    def trainer(self, name: str, node: str) -> None:
        """Starts a trainer on a node."""
        self._create(name, node, ["-c", TRAINER], app="trainer")

    def _create(self, name: str, node: str, args: list[str], *, app: str) -> None:
        env = {"EDL_TOKEN": TOKEN, "EDL_JOB": "job", "EDL_MASTER": self.address}
        env["EDL_TRAINER"] = name
        container: dict[str, Any] = {
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "args": args,
            "env": [{"name": key, "value": value} for key, value in env.items()],
            "volumeMounts": [{"name": "journal", "mountPath": "/journal"}],
        }
        if app == "master":
            container["readinessProbe"] = {
                "httpGet": {"path": "/healthz", "port": PORT},
                "periodSeconds": 1,
            }
        spec = {
            "restartPolicy": "OnFailure",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 5,
            "containers": [container],
            "volumes": [{"name": "journal", "emptyDir": {}}],
        }
        body = {"metadata": {"name": name, "labels": {"app": app}}, "spec": spec}
        self.api.send(request.create(PODS, self.namespace, body))

    def delete(self, name: str, grace_s: int = 5) -> None:
        """Deletes a pod; a grace of 0 forgets one whose node does not answer."""
        self.api.send(request.delete(PODS, self.namespace, name, grace_s=grace_s))

    def pod(self, name: str) -> dict[str, Any]:
        """Returns a pod as it is."""
        stored_pod: dict[str, Any] = orjson.loads(
            self.api.send(request.get(PODS, self.namespace, name))
        )
        return stored_pod

    def phase(self, name: str) -> str:
        """Returns a pod's phase."""
        return str(self.pod(name)["status"]["phase"])

    def trained(self, name: str) -> list[int]:
        """Returns the records that a trainer says it trained, in its order."""
        path = request.path_of(PODS, self.namespace, name)
        try:
            text = self.api.send(Request("GET", f"{path}/log")).decode()
        except KubeError:
            return []
        lines = re.findall(r"^trained (.*)$", text, re.MULTILINE)
        return [int(word) for line in lines for word in line.split()]

    def just_trained(self, name: str) -> list[int]:
        """Returns the same, as soon as a batch is added: for a moment the trainer reports nothing new."""
        looks = [self.trained(name)]

        def is_added() -> bool:
            looks.append(self.trained(name))
            return 0 < len(looks[-2]) < len(looks[-1])

        self.until(is_added)
        return looks[-1]

    def longest_pause_s(self, name: str) -> float:
        """Returns the longest time between two batches of a trainer."""
        path = request.path_of(PODS, self.namespace, name)
        text = self.api.send(Request("GET", f"{path}/log")).decode()
        times_s = [float(word) for word in re.findall(r"^at (.*)$", text, re.MULTILINE)]
        return max(later - time_s for time_s, later in pairwise(times_s))

    def story(self) -> str:
        """Each pod with its containers' states and the end of its log."""
        lines = []
        pods = orjson.loads(self.api.send(request.list_page(PODS, self.namespace)))["items"]
        for pod in pods:
            name, status = pod["metadata"]["name"], pod["status"]
            lines.append(f"{name}: {status['phase']} {status.get('containerStatuses')}")
            try:
                path = request.path_of(PODS, self.namespace, name)
                lines.append(self.api.send(Request("GET", f"{path}/log")).decode()[-2000:])
            except KubeError as error:
                lines.append(str(error))
        return "\n".join(lines)

    def until(self, fact: Callable[[], bool]) -> float:
        """Waits for a condition; returns the time in seconds. A failure shows the logs of the job's pods."""
        return until_true(fact, _WAIT_S, self.story)

    def status(self, master: str) -> dict[str, Any]:
        """Returns the status of a master, requested at its pod's address; empty if it does not answer."""
        address = self.pod(master)["status"].get("podIP", "")
        try:
            answer = urllib3.request(
                "GET",
                f"http://{address}:{PORT}/v1/status",
                headers={"Authorization": f"Bearer {TOKEN}"},
                timeout=2.0,
                retries=False,
            )
        except urllib3.exceptions.HTTPError:
            return {}
        return dict(answer.json()) if answer.status == 200 else {}

    def has_trainers(self, master: str) -> bool:
        """Returns whether trainers have joined a master, or are through already."""
        status = self.status(master)
        return bool(status.get("trainers")) or status.get("state") == "done"

    def end(self, master: str) -> dict[str, Any]:
        """Returns the status of a master once the job is done."""
        return until(
            "all is done",
            lambda: self.status(master),
            lambda status: status.get("state") == "done",
            _WAIT_S,
        )


@pytest.fixture
def training(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Training]:
    """A namespace for this test."""
    name = f"job-{request.node.name.rpartition('_')[2]}"
    with contextlib.closing(Client(load(cluster.admin), user_agent="edl-test-node")) as api:
        yield Training(api, name)


def test_a_deleted_master_goes_on_elsewhere(training: Training, report: Printer) -> None:
    """On another node, from the snapshot in the ConfigMap; each record is trained exactly once."""
    first = training.master(FIRST)
    for name, node in (("trainer-0", FIRST), ("trainer-1", SECOND)):
        training.trainer(name, node)
    training.until(lambda: len(training.trained("trainer-1")) >= RECORDS // 6)
    training.delete(first)
    second = training.master(SECOND)
    took_s = training.until(lambda: training.has_trainers(second))
    training.until(
        lambda: training.phase("trainer-0") == training.phase("trainer-1") == "Succeeded"
    )
    trained_counts = Counter(training.trained("trainer-0") + training.trained("trainer-1"))
    status = training.end(second)

    report(f"another node's master has trainers {took_s:.1f} s after the first was deleted")
    assert trained_counts == Counter(range(RECORDS))
    assert status["trained_again_records"] == 0


def test_a_node_without_power_loses_no_record(
    cluster: Cluster, training: Training, report: Printer
) -> None:
    """Master and trainer of a node are gone at once, with journal and memory; all is trained."""
    first = training.master(FIRST)
    for name, node in (("trainer-0", FIRST), ("trainer-1", SECOND)):
        training.trainer(name, node)
    training.until(lambda: len(training.trained("trainer-0")) >= RECORDS // 6)
    lost = training.just_trained("trainer-0")  # what it trained after that would be in no log
    cluster.real_nodes[FIRST].kill()
    for name in (first, "trainer-0"):
        training.delete(name, grace_s=0)
    second = training.master(SECOND)
    took_s = training.until(lambda: training.has_trainers(second))
    training.until(lambda: training.phase("trainer-1") == "Succeeded")
    trained_counts = Counter(lost + training.trained("trainer-1"))
    training.end(second)
    cluster.real_nodes[FIRST].start()

    again = sum(trained_counts.values()) - len(trained_counts)
    report(f"another node's master has trainers {took_s:.1f} s after the power went")
    report(f"{again} of {RECORDS} records were trained again")
    report(f"the other trainer paused for at most {training.longest_pause_s('trainer-1'):.1f} s")
    assert set(trained_counts) == set(range(RECORDS))
    assert again < RECORDS // 6
