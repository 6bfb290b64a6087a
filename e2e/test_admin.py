"""An admin's first hour on a real API server: check, install, doctor, remove, and nothing is left."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import orjson
import pytest
import yaml

from e2e.cluster.local import Cluster, running
from e2e.commands import kubectl
from e2e.environment import has_account
from e2e.waiting import until_true
from kube import config, request
from kube.client import Client
from kube.errors import NotFound
from kube.request import CUSTOMRESOURCEDEFINITIONS, JOBS, NAMESPACES, Resource
from policy.names import MANAGER, SYSTEM_NAMESPACE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[1]
BASE = ROOT / "deploy" / "base"
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
OF_EDL = "app.kubernetes.io/part-of=edl"
_GONE_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without EDL."""
    with running(tmp_path_factory.mktemp("admin")) as bare:
        yield bare


def _admin(cluster: Cluster, *words: str) -> tuple[int, str]:
    """Exit code and report of one of the admin's commands."""
    command = [sys.executable, "-m", "admin", "--kubeconfig", str(cluster.admin)]
    command += ["--kubectl", str(cluster.kubectl), *words]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def _kubectl(cluster: Cluster, *words: str) -> None:
    done = kubectl(cluster, *words, timeout_s=180)
    assert done.returncode == 0, done.stderr


def _is_counted(api: Client) -> bool:
    """Returns whether the quota is in force: before, the API server admits everything."""
    quota = orjson.loads(api.send(request.get(QUOTAS, "full", "none")))
    return "pods" in quota.get("status", {}).get("used", {})


def _is_gone(api: Client) -> bool:
    """Returns whether the namespace has ended, and the kinds: their removal ends after it was asked for, too."""
    try:
        api.send(request.get(NAMESPACES, None, SYSTEM_NAMESPACE))
    except NotFound:
        kinds = request.list_page(CUSTOMRESOURCEDEFINITIONS, label_selector=OF_EDL)
        return not orjson.loads(api.send(kinds))["items"]
    return False


def test_an_admins_first_hour(cluster: Cluster) -> None:
    """Each command says what is the case, with the API server's own words."""
    with closing(Client(config.load(cluster.admin))) as api:
        for name in ("ml", "full"):
            api.send(request.create(NAMESPACES, None, {"metadata": {"name": name}}))
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
        api.send(request.create(QUOTAS, "full", quota))
        until_true(lambda: _is_counted(api))
        until_true(lambda: has_account(api, "ml") and has_account(api, "full"))

        ready = _admin(cluster, "check", "--namespace", "ml")
        refused = _admin(cluster, "check", "--namespace", "full")
        _kubectl(cluster, "apply", "-k", str(BASE))
        installed = _admin(cluster, "check", "--namespace", "ml")
        doctor = _admin(cluster, "doctor")
        _, rendered = _admin(cluster, "scheduler-config")
        body = {"metadata": {"name": "net"}, "spec": {"managedBy": MANAGER, "template": TEMPLATE}}
        api.send(request.create(JOBS, "ml", body))
        present = _admin(cluster, "remains")
        _kubectl(cluster, "delete", "-k", str(BASE), "--wait=false")
        api.send(request.delete(JOBS, "ml", "net"))
        until_true(lambda: _is_gone(api), _GONE_S)
        absent = _admin(cluster, "remains")

    assert ready[0] == 0, ready[1]
    for line in ("ok      managedBy", "ok      clock:", "ok      rights:", "ok      namespace ml:"):
        assert line in ready[1]
    assert refused[0] == 1
    assert "error   namespace full: masters of jobs would be refused: " in refused[1]
    assert "exceeded quota: none" in refused[1]
    assert installed[0] == 0, installed[1]
    assert "installed in edl-system: this would be an upgrade" in installed[1]
    assert "ok      namespace edl-system: admits EDL's servers" in installed[1]
    assert doctor[0] == 1
    assert "error   edl-webhook: 0 of 2 replicas are ready" in doctor[1]
    assert "error   admission: the API server does not reach the webhook" in doctor[1]
    assert yaml.safe_load(rendered)["kind"] == "KubeSchedulerConfiguration"
    assert "warning job ml/net: its 0 trainers run on" in present[1]
    assert "ok      objects: none of EDL is left" in absent[1]
