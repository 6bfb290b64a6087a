"""A second EDL in the same cluster, with the rights of the first: it is named, and it harms nothing."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from e2e import scheduling
from e2e.cluster.process import Process
from e2e.commands import kubectl
from e2e.environment import Environment, IsolatedNamespace
from e2e.two_reconcilers import is_synced
from e2e.waiting import until, until_true
from policy.names import SYSTEM_NAMESPACE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

_OTHER = "team-a"
_ROOT = Path(__file__).parents[1]
_FLAGS = ("--listen", "127.0.0.1:0", "--drain-seconds", "0")


def _manifests() -> list[dict[str, Any]]:
    """Grants another namespace's reconciler the rights of the first, in addition to its rights."""
    text = orjson.dumps(scheduling.documents(scheduling.BASE / "reconciler-rbac.yaml")).decode()
    objects = orjson.loads(text.replace(f'"{SYSTEM_NAMESPACE}"', f'"{_OTHER}"'))
    for item in objects:
        if item["kind"] == "ClusterRoleBinding":
            item["metadata"]["name"] += f"-{_OTHER}"
    (policy,) = scheduling.documents(scheduling.BASE / "policy.yaml")
    policy["metadata"]["namespace"] = _OTHER
    return [*objects, policy, _deployment()]


def _deployment() -> dict[str, Any]:
    """What `check` and `doctor` see of it; its process runs beside the cluster."""
    (deployment,) = (
        document
        for document in scheduling.documents(scheduling.BASE / "reconciler.yaml")
        if document["kind"] == "Deployment"
    )
    deployment["metadata"]["namespace"] = _OTHER
    deployment["spec"]["replicas"] = 0
    return deployment


@pytest.fixture
def second(environment: Environment, tmp_path: Path) -> Iterator[Process]:
    """A reconciler of another namespace, which leads there."""
    cluster = environment.cluster
    assert kubectl(cluster, "create", "namespace", _OTHER).returncode == 0
    manifests = orjson.dumps({"apiVersion": "v1", "kind": "List", "items": _manifests()}).decode()
    applied = kubectl(cluster, "apply", "-f", "-", text=manifests)
    assert applied.returncode == 0, applied.stderr
    account = cluster.kubeconfig(f"system:serviceaccount:{_OTHER}:edl-reconciler")
    announced = tmp_path / "address"
    words = [sys.executable, "-m", "reconciler", "--kubeconfig", str(account)]
    words += ["--namespace", _OTHER, *_FLAGS, "--announce-file", str(announced)]
    process = Process("second", words, tmp_path / "second.log", cwd=_ROOT)
    try:
        until("the second is ready", lambda: is_synced(announced), bool, 30)
        yield process
    finally:
        process.kill()


def test_a_second_edl_is_named_and_harms_nothing(
    environment: Environment, namespace: IsolatedNamespace, second: Process
) -> None:
    """Both plan the same Job; the API server refuses all that the second would write."""
    namespace.submit("net", low=3, high=20)
    namespace.wait_running("net", 20, 30)
    namespace.services(30)
    namespace.wait_services(30, 30)
    until_true(lambda: "403" in second.log.read_text() or "orbidden" in second.log.read_text())
    namespace.services(0)
    namespace.wait_running("net", 20, 40)
    job = namespace.wait_exact("net", 20)
    words = [sys.executable, "-m", "admin", "--kubeconfig", str(environment.cluster.admin), "check"]
    checked = subprocess.run(words, cwd=_ROOT, capture_output=True, text=True, check=False)

    assert job.status.failed == 0
    assert checked.returncode == 1
    assert (
        f"error   another EDL: also installed in {_OTHER}: both would plan the same Jobs"
        in checked.stdout
    )
