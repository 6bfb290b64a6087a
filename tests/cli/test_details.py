"""What commands ask the cluster for, in whose name, and what they leave out."""

import json
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from cli import frame, records
from cli.errors import ExitCode
from cli.frame import Flags, Frame
from kube.request import PODS
from lab.fake_api import FakeApi
from policy.records import CLUSTER, Record
from tests.cli.cluster import NOW, NOW_S, Cli, CliCluster

NO_FLAGS = Flags(None, None, None)


def _record(job: str, at_s: float = NOW_S) -> Record:
    return Record(at_s, f"job {job}", "NoRoom", "no room", job=job)


def _add_pod(api: FakeApi, name: str, **spec: str) -> None:
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    body = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
    phase = "Running" if spec else "Pending"
    api.add(PODS, {**body, "status": {"phase": phase}}, "ml")  # type: ignore[attr-defined] # a CliCluster


def test_a_completion_asks_the_cluster_of_the_words_before(
    edl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its kubeconfig, context and namespace."""
    asked: list[Flags] = []

    def connect(flags: Flags) -> CliCluster:
        asked.append(flags)
        return edl.cluster

    monkeypatch.setattr(frame, "connect", connect)
    edl("__complete", "why", "--kubeconfig", "file", "--context", "test", "-n", "shop", "")

    assert asked == [Flags(Path("file"), "test", "shop")]


def test_commands_write_to_the_terminal_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is that of the process."""
    monkeypatch.setattr(frame, "connect", lambda _flags: CliCluster())

    assert Frame(NO_FLAGS).console.file is sys.stdout


def test_top_counts_services_that_wait_and_for_how_long(
    edl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that runs does not wait; the age is that of the oldest."""
    for name, age_s in (("web-1", 90.55), ("web-2", 30)):
        with monkeypatch.context() as patch:
            patch.setattr(edl.cluster, "_wall", lambda age_s=age_s: NOW - timedelta(seconds=age_s))
            _add_pod(edl.cluster, name)
    _add_pod(edl.cluster, "web-3", nodeName="n0")
    shown = json.loads(edl("top", "-o", "json").out)

    assert shown["servicesWaiting"] == 2
    assert 90 <= shown["oldestWaitSeconds"] <= 91  # Kubernetes stores whole seconds


@pytest.mark.parametrize(
    ("name", "near"), [("pod/web-11", "did you mean web-1?"), ("pod/digit", ""), ("job/web-11", "")]
)
def test_the_nearest_name_is_of_the_kind_that_was_asked_for(edl: Cli, name: str, near: str) -> None:
    """Pods that EDL has never recorded, too."""
    edl.cluster.add_job("digits")
    _add_pod(edl.cluster, "web-1")
    run = edl("why", name)

    assert run.code == ExitCode.NOT_FOUND
    assert near in run.err
    assert ("did you mean" in run.err) is bool(near)


def test_records_of_the_cluster_are_those_of_the_text(
    edl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other jobs of the namespace are left out."""
    monkeypatch.setattr(frame, "connect", lambda _flags: edl.cluster)
    old = [_record(f"ml/{name}", NOW_S - 20) for name in ("net", "other")]
    edl.cluster.add_records("ml", _record("ml/net", NOW_S - 30))
    edl.cluster.add_records(CLUSTER, *old, log="history")
    edl.cluster.add_records(CLUSTER, _record("ml/net"), _record("ml/other"), log="history")
    of_net = records.of_cluster(Frame(NO_FLAGS), containing="ml/net")

    assert {record.job for record in of_net} == {"ml/net"}


def test_who_may_not_read_all_records_is_told_to_name_a_namespace(edl: Cli) -> None:
    """Only where all were asked for."""
    edl.cluster.add_job("digits")
    edl.cluster.forbidden = {("decisionlogs", None), ("decisionlogs", "ml")}
    everywhere, here = edl("jobs", "-A"), edl("jobs")

    assert "set a namespace with -n, or ask an admin" in everywhere.err
    assert "in the namespace ml: ask an admin" in here.err
