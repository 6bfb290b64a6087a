"""An elastic Job with a master as a user submits it, in containers on real nodes.

All of EDL takes part: the webhook adds the master, the reconciler marks, moves and asks it, and ends
the Job on its word.
"""

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from e2e.environment import Environment, IsolatedNamespace
from e2e.real_nodes import real_environment
from e2e.waiting import until
from kube import request
from kube.request import CONFIGMAPS, JOBS, PODS
from master.fence import unpack
from master.ledger import Ledger
from policy.cluster.snapshot import Phase, Pod
from policy.names import ANNOTATION_MASTER, ANNOTATION_MAX, ANNOTATION_MIN
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # the first run builds the node's parts

IMAGE = "edl.local/test-injection:1"
RECORDS = 600
TASK = 10
TRAINER = f"""
import time
import edl
data = edl.from_function("numbers", lambda number: number, {RECORDS})
for batch in edl.batches(data, {TASK}, task_records={TASK}):
    time.sleep(0.25)
    print("trained", *batch, flush=True)
print("finished", flush=True)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """Two real nodes with this project's image, with EDL beside them."""
    with real_environment(tmp_path_factory.mktemp("injection"), IMAGE) as prepared:
        yield prepared


def _submit(namespace: IsolatedNamespace, low: int, high: int) -> None:
    """An elastic Job of trainers that need little and take a while."""
    annotations = {
        ANNOTATION_MIN: str(low),
        ANNOTATION_MAX: str(high),
        ANNOTATION_MASTER: "true",
    }
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["python", "-c", TRAINER],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    body = {
        "metadata": {"name": "numbers", "annotations": annotations},
        "spec": {"template": {"spec": spec}},
    }
    namespace.environment.send(request.create(JOBS, namespace.name, body))


def _master_host(namespace: IsolatedNamespace) -> Pod | None:
    """Returns the pod that hosts the master and runs."""
    pods = [
        pod
        for pod in namespace.trainers("numbers")
        if pod.master and pod.phase is Phase.RUNNING and pod.address
    ]
    return pods[0] if pods else None


def _snapshot_data(namespace: IsolatedNamespace) -> dict[str, str]:
    """Returns the data that the masters wrote to the ConfigMap."""
    config_map = namespace.environment.send(
        request.get(CONFIGMAPS, namespace.name, "numbers-edl-master")
    )
    return dict(config_map.get("data", {}))


def _generation(namespace: IsolatedNamespace) -> int:
    """Returns how many masters have written to the ConfigMap one after the other."""
    return int(_snapshot_data(namespace).get("generation", 0))


def _done_records(namespace: IsolatedNamespace) -> int:
    """Returns the acknowledged records in the last snapshot."""
    ledger = Ledger("numbers")
    ledger.load(unpack(_snapshot_data(namespace)["snapshot"]))
    return int(ledger.datasets["numbers"].progress()["done_records"])


class Watcher:
    """Keeps the trainers' logs while they can be read: they go with their pods."""

    def __init__(self, namespace: IsolatedNamespace) -> None:
        self._here = namespace
        self._logs: dict[str, str] = {}

    def look(self) -> int:
        """Returns how many batches have been trained, as far as anybody said."""
        for pod in self._here.trainers("numbers"):
            if text := self._here.log(pod.name):
                self._logs[pod.name] = text
        return sum(text.count("trained") for text in self._logs.values())

    def over(self) -> bool:
        """Returns whether the Job is over."""
        self.look()
        return self._here.job("numbers").finished

    def records(self) -> Counter[int]:
        """How often each record was trained."""
        lines = (
            line
            for text in self._logs.values()
            for line in re.findall(r"^trained (.*)$", text, re.MULTILINE)
        )
        return Counter(int(word) for line in lines for word in line.split())


def _print_pods(namespace: IsolatedNamespace) -> None:
    """Prints the logs of the job's pods and of the reconciler, for the report of a failure."""
    log = namespace.environment.control_plane.log("reconciler")
    print(f"-- reconciler\n{log.read_text()[-6000:]}")
    for pod in namespace.trainers("numbers"):
        print(f"{pod.name} on {pod.node}: {pod.phase.value}, hosts the master: {pod.master}")
        for container in ("main", "edl-master"):
            print(f"-- {container}\n{namespace.log(pod.name, container)[-3000:]}")


def _begin(namespace: IsolatedNamespace) -> tuple[Pod, Watcher]:
    """Returns a Job some of whose records are trained; the pod that carries its master."""
    _submit(namespace, 2, 3)
    host = until("a master runs", lambda: _master_host(namespace), bool, 120)
    assert host is not None
    watcher = Watcher(namespace)
    until("some is trained", watcher.look, lambda batches: batches >= 12, 120)
    return host, watcher


def _reason(namespace: IsolatedNamespace, kind: str) -> str:
    return {c.type: c.reason for c in namespace.job("numbers").status.conditions}.get(kind, "")


def test_a_job_outlives_the_pod_with_its_master(namespace: IsolatedNamespace) -> None:
    """Another serves, and the Job is complete when the master says so."""
    first, watcher = _begin(namespace)
    before = _generation(namespace)
    begun_s = clock.monotonic_s()
    namespace.environment.send(request.delete(PODS, namespace.name, first.name))
    until(
        "another has taken over",
        lambda: (watcher.look(), _generation(namespace))[1],
        lambda now: now > before,
        60,
    )
    took_s = clock.monotonic_s() - begun_s
    print(f"another master has taken over {took_s:.1f} s after the first's pod was deleted")
    until("the job is over", watcher.over, bool, 300)
    records = watcher.records()
    print(f"{len(records)} of {RECORDS} records seen in logs")

    assert _reason(namespace, "Complete") == "MasterSaysDone"
    assert max(records.values()) == 1
    assert _done_records(namespace) == RECORDS  # logs go with their pods, last lines unread
    for reason in ("TrainersEndedEarly", "MasterSilent", "MasterNotProvided"):
        assert namespace.events("numbers", reason) == []


def test_a_job_outlives_the_node_with_its_master(namespace: IsolatedNamespace) -> None:
    """Once Kubernetes says that the node is not ready, another pod hosts the master."""
    first, watcher = _begin(namespace)
    before = _generation(namespace)
    nodes = namespace.environment.cluster.real_nodes
    nodes[first.node].kill()
    try:
        begun_s = clock.monotonic_s()
        namespace.environment.declare_lost(first.node)
        until(
            "another has taken over", lambda: _generation(namespace), lambda now: now > before, 60
        )
        took_s = clock.monotonic_s() - begun_s
        print(f"another master has taken over {took_s:.1f} s after the node was declared lost")
        until("its end is decided", lambda: namespace.job("numbers").over, bool, 300)
    except AssertionError:
        _print_pods(namespace)
        raise
    finally:
        nodes[first.node].start()  # pods that are told to stop can only be gone once it is back
    until("the job is over", watcher.over, bool, 120)

    assert _reason(namespace, "Complete") == "MasterSaysDone"
