"""One whole reconciler process but for its socket, on a cluster in memory."""

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from kubernetes.client.configuration import Configuration

from kube import config, record_log, request
from kube.lease import Elector
from kube.request import CONFIGMAPS, EVENTS, JOBS, LEASES, NODES
from lab.fake_api import FakeApi
from policy.names import POLICY_CONFIGMAP, POLICY_KEY
from reconciler import __main__ as command
from reconciler import app
from reconciler.settings import ReconcilerSettings
from reconciler.watchdog import DEAD_S, PATIENCE_S, LoopHealth, WallClock, Watchdog
from runtime import logs, supervisor
from runtime.serve import WebService
from tests.reconciler import objects
from tests.reconciler.waiting import until
from tests.reconciler.world import WHOLE

TO_BE_REPLACED = (
    "a thread of the component is stuck, or the clock was set back: restart the process"
)
SETTINGS = ReconcilerSettings(identity="me", namespace="edl", gather_seconds=0)


class Cluster(FakeApi):
    """An API server, and how processes came to it."""

    def __init__(self) -> None:
        super().__init__()
        self.came: list[tuple[Configuration, str]] = []
        self.elections: list[dict[str, Any]] = []

    def client(self, connection: Configuration, *, user_agent: str) -> "Cluster":
        """Stands in for `kube.client.Client`."""
        self.came.append((connection, user_agent))
        return self

    def elector(self, *where: Any, may_lead: Callable[[bool], bool], **times_s: float) -> Elector:
        """Stands in for `kube.lease.Elector`."""
        self.elections.append(times_s)
        return Elector(*where, may_lead=may_lead, **times_s)  # type: ignore[arg-type]

    def all(self, resource: request.Resource) -> list[Any]:
        """Every object of a kind."""
        items: list[Any] = orjson.loads(self.send(request.list_page(resource, limit=0)))["items"]
        return items


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A node, and a policy in EDL's namespace that keeps nothing free."""
    stand_in = Cluster()
    monkeypatch.setattr(app, "Client", stand_in.client)
    monkeypatch.setattr(app, "Elector", stand_in.elector)
    stand_in.send(request.create(NODES, None, objects.node("n0", 16)))
    body = {"metadata": {"name": POLICY_CONFIGMAP}, "data": {POLICY_KEY: WHOLE}}
    stand_in.send(request.create(CONFIGMAPS, "edl", body))
    return stand_in


@pytest.fixture
def start(cluster: Cluster) -> Iterator[Callable[[ReconcilerSettings], WebService]]:
    """Starts a process with such settings; no thread of it is left afterwards."""
    before = set(threading.enumerate())
    started: list[WebService] = []
    connection = Configuration()

    def starting(settings: ReconcilerSettings) -> WebService:
        service = app.build(settings, connection)
        service.start()
        started.append(service)
        assert cluster.came[-1] == (connection, "edl-reconciler")
        return service

    yield starting
    for service in started:
        service.stop()
    until(lambda: set(threading.enumerate()) <= before)


def _get(service: WebService, path: str) -> tuple[int, Any]:
    """Status and JSON of a private or public page."""
    answer = service.app.test_client().get(path)
    return answer.status_code, answer.json


def test_a_process_that_leads_plans_writes_and_says_why(
    cluster: Cluster, start: Callable[[ReconcilerSettings], WebService]
) -> None:
    """From the watch to the trainer, the event, the record and the figure."""
    service = start(SETTINGS)
    cluster.send(request.create(JOBS, "ml", objects.job("net", 3, 3)))
    until(lambda: "AtMax" in [record.code for record in record_log.read(cluster, "ml")])
    until(lambda: cluster.all(EVENTS))
    status, ready = _get(service, "/readyz")
    age_s = ready.pop("watch_age_seconds")
    (event, *_) = cluster.all(EVENTS)
    (lease,) = cluster.all(LEASES)

    assert status == 200
    assert {key: ready[key] for key in ("leader", "synced")} == {"leader": True, "synced": True}
    assert ready["policy"]["source"] == "configmap"
    assert ready["scheduling"].keys() == {"scheduler", "extender"}
    assert 0.0 <= age_s == round(age_s, 1)
    assert event["source"] == {"component": "me"}
    assert (lease["metadata"]["name"], lease["metadata"]["namespace"]) == ("edl-reconciler", "edl")
    assert lease["spec"]["holderIdentity"] == "me"
    for loop in ("ticks", "training_jobs"):
        assert {"age_seconds", "stuck_seconds", "failing_seconds"} == ready[loop].keys()
    scrape = service.app.test_client().get("/metrics").text
    assert 'edl_reconciler_leases_given_up_total{reason="stuck"} 0.0' in scrape
    assert 'edl_reconciler_leases_given_up_total{reason="training_jobs_stuck"} 0.0' in scrape
    assert "edl_reconciler_training_jobs_failing 0.0" in scrape
    assert "edl_reconciler_training_job_failures_total 0.0" in scrape
    assert "# HELP edl_reconciler_tick_age_seconds Time since the last tick that ended" in scrape
    assert "edl_reconciler_events_dropped_total 0.0" in scrape
    assert "edl_reconciler_leader 1.0" in scrape


def test_a_process_whose_tick_hangs_is_not_ready_and_then_not_alive(
    start: Callable[[ReconcilerSettings], WebService], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probes say what the loop itself cannot: the kubelet restarts it."""
    service = start(SETTINGS)
    until(lambda: _get(service, "/readyz")[0] == 200)
    stuck = LoopHealth(tick_age_s=200.0, stuck_s=PATIENCE_S, failing_s=0.0)
    monkeypatch.setattr(Watchdog, "health", stuck)
    hanging = _get(service, "/readyz")[0], _get(service, "/healthz")[0]
    monkeypatch.setattr(Watchdog, "health", replace(stuck, stuck_s=DEAD_S))
    dead = _get(service, "/healthz")

    assert hanging == (503, 200)
    assert (dead[0], dead[1]["error"]["message"]) == (503, TO_BE_REPLACED)


def test_a_process_whose_clock_was_set_back_is_started_anew(
    start: Callable[[ReconcilerSettings], WebService], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pauses would last as much longer; in memory alone, so nothing is lost."""
    service = start(SETTINGS)
    until(lambda: _get(service, "/readyz")[0] == 200)
    alive = _get(service, "/healthz")[0]
    monkeypatch.setattr(WallClock, "was_set_back", True)

    assert (alive, _get(service, "/healthz")[0]) == (200, 503)


def test_one_that_does_not_lead_is_ready(
    cluster: Cluster, start: Callable[[ReconcilerSettings], WebService]
) -> None:
    """To take over."""
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 600}
    lease = {"metadata": {"name": "edl-reconciler"}, "spec": spec}
    cluster.send(request.create(LEASES, "edl", lease))
    service = start(SETTINGS)
    until(lambda: _get(service, "/readyz")[0] == 200)

    assert _get(service, "/readyz")[1]["leader"] is False


def test_a_lease_is_renewed_well_before_it_ends(cluster: Cluster) -> None:
    """Within two thirds of it, with several tries; the numbers of client-go for 15 seconds."""
    app.build(SETTINGS, Configuration())

    assert cluster.elections == [{"lease_s": 15.0, "renew_s": 10.0, "retry_s": 2.0}]


def test_without_an_identity_each_process_has_one_of_its_own(
    start: Callable[[ReconcilerSettings], WebService], cluster: Cluster
) -> None:
    """Two on one host are two."""
    start(SETTINGS.model_copy(update={"identity": ""}))
    until(lambda: cluster.all(LEASES))
    (lease,) = cluster.all(LEASES)
    host, _, suffix = lease["spec"]["holderIdentity"].rpartition("-")

    assert host == socket.gethostname()
    assert len(suffix) == 8


def test_the_command_serves_what_it_was_told_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Settings of the command line, the connection of the kubeconfig, logs as configured."""
    served: list[tuple[Any, Any]] = []
    levels: list[tuple[str, str, str]] = []
    connection = Configuration()
    loaded: list[Path | None] = []

    def load(path: Path | None) -> Configuration:
        loaded.append(path)
        return connection

    def setup(room: str, *, level: str, form: str) -> None:
        levels.append((room, level, form))

    monkeypatch.setattr(config, "load", load)
    monkeypatch.setattr(logs, "setup", setup)
    monkeypatch.setattr(supervisor, "run", lambda settings, build: served.append((settings, build)))
    monkeypatch.setattr(command, "build", lambda *arguments: arguments)
    flags = ["--namespace=edl", "--log-level=debug", "--log-format=text"]
    where = tmp_path / "kubeconfig"
    monkeypatch.setattr(sys, "argv", ["reconciler", *flags, f"--kubeconfig={where}"])
    command.main()

    ((settings, build),) = served
    assert settings.namespace == "edl"
    assert build() == (settings, connection)
    assert loaded == [where]
    assert levels == [("reconciler", "debug", "text")]


def test_help_begins_with_what_it_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one sentence."""
    monkeypatch.setattr(sys, "argv", ["reconciler", "--help"])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        command.main()

    text = "Watches services and elastic jobs, plans, creates and evicts trainers."
    assert ended.value.code == 0
    assert f"\n{text}\n" in capsys.readouterr().out
