"""Masters against a real API server: one writes the snapshot, another takes over, the first stops."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any

import orjson
import pytest
from edl.local.ports import free_ports

from e2e.cluster.local import Cluster, running
from e2e.waiting import until
from kube import config, request
from kube.client import Client
from kube.request import CONFIGMAPS
from master.service import FENCED
from runtime import clock
from tests.sdk.support.contract import Master, Trainer, done, ref

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

TOKEN = "token-of-a-job-of-journeys"  # noqa: S105 - of servers that live as long as a test
NAMESPACE, NAME = "default", "digits-master"
_PATIENCE_S = 20.0
_TAKEOVER_S = 10.0
"""The issue's limit, from the pod's deletion; here, from the start of the process."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane."""
    with running(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    """An administrator, and the empty ConfigMap that the reconciler would have made."""
    api_client = Client(config.load(cluster.admin), user_agent="edl-e2e")
    api_client.send(request.create(CONFIGMAPS, NAMESPACE, {"metadata": {"name": NAME}}))
    yield api_client
    api_client.send(request.delete(CONFIGMAPS, NAMESPACE, NAME))
    api_client.close()


@contextmanager
def _serving(cluster: Cluster, journal: Path) -> Iterator[tuple[Master, "subprocess.Popen[str]"]]:
    (port,) = free_ports(1)
    words = ["--listen", f"127.0.0.1:{port}", "--journal", str(journal)]
    words += ["--snapshot-configmap", f"{NAMESPACE}/{NAME}", "--kubeconfig", str(cluster.admin)]
    words += ["--heartbeat-seconds", "60"]  # on a busy machine a process may take long to start
    process = subprocess.Popen(
        [sys.executable, "-m", "master", *words],
        env={**os.environ, "EDL_JOB": "digits", "EDL_TOKEN": TOKEN},
        stderr=subprocess.PIPE,
        text=True,
    )
    master = Master(port, TOKEN)
    try:
        until("serving", lambda: _serves(master), bool, _PATIENCE_S)
        yield master, process
    finally:
        process.kill()
        process.communicate()


def _serves(master: Master) -> bool:
    try:
        return master.ask("GET", "/healthz")[0] == 200
    except OSError:
        return False


def _unless_gone(trainer: Trainer, lease: dict[str, Any]) -> dict[str, Any] | None:
    """A master's answer to a task that is done; None if it stops or has stopped, which no caller can rule out."""
    try:
        status, answer = trainer.say("POST", "/v1/work", **trainer.order(done=[done(lease)]))
    except (OSError, HTTPException):
        return None
    assert status in (HTTPStatus.OK, HTTPStatus.INSUFFICIENT_STORAGE), answer
    return answer if status == HTTPStatus.OK else None


def _snapshot(client: Client) -> dict[str, str]:
    config_map: dict[str, str] = orjson.loads(
        client.send(request.get(CONFIGMAPS, NAMESPACE, NAME))
    ).get("data", {})
    return config_map


def test_another_master_takes_over_and_the_old_one_stops(
    cluster: Cluster, client: Client, tmp_path: Path
) -> None:
    """Nothing that was answered is lost, nothing is leased twice, and exit code 3 says why."""
    with _serving(cluster, tmp_path / "1") as (old, process):
        old.describe()
        trainer = old.join("trainer-0")
        first, second, third = trainer.work(3)["tasks"]
        trainer.work(done=[done(first)])
        begun_s = clock.monotonic_s()
        with _serving(cluster, tmp_path / "2") as (new, _):
            took_s = clock.monotonic_s() - begun_s
            late = _unless_gone(trainer, second)
            until("fenced", process.poll, lambda code: code is not None, _PATIENCE_S)
            answers = [done(first), done(second)]  # the snapshot may be a second old
            again = new.join("trainer-0", done=answers, held=[ref(third)])
            again.calls = trainer.calls
            remaining = again.work(4, done=[done(third)])
            last = again.work(1, done=[done(lease) for lease in remaining["tasks"]])
            status = new.ask("GET", "/v1/status")[1]
            snapshot = _snapshot(client)

    assert process.returncode == FENCED
    assert took_s < _TAKEOVER_S
    assert again.join_response["generation"] == 2
    assert (remaining["results"], len(remaining["tasks"])) == (["accepted"], 1)
    assert late is None or late["safe"] < trainer.calls
    assert last["state"] == "done"
    assert status["datasets"]["train"]["done_records"] == 40
    assert status["trained_again_records"] == 0
    assert (snapshot["generation"], snapshot["outcome"]) == ("2", "done")


def test_a_master_that_ends_writes_its_outcome(
    cluster: Cluster, client: Client, tmp_path: Path
) -> None:
    """On SIGTERM, for the one after it and for the reconciler."""
    with _serving(cluster, tmp_path / "1") as (master, process):
        master.describe()
        trainer = master.join("trainer-0")
        trainer.work(done=[done(lease) for lease in trainer.work(4)["tasks"]])
        process.send_signal(signal.SIGTERM)
        code = process.wait(_PATIENCE_S)

    assert code == 0
    assert _snapshot(client)["outcome"] == "done"
