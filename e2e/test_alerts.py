"""A real Prometheus beside a real cluster: each fault of EDL's servers fires its alert and no other.

`test_monitoring.py` has Prometheus' test tool play the faults that cannot be made here in a minute.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3
import yaml
from edl.local.ports import free_ports

from e2e.cluster import build
from e2e.cluster.components import KWOK
from e2e.cluster.nodes import node
from e2e.cluster.process import Process
from e2e.cluster.toolchain import PROMETHEUS
from e2e.control_plane import EDL_COMPONENTS
from e2e.environment import SLOTS, Environment, IsolatedNamespace
from e2e.faults import extender_certificate, fill, stopped
from e2e.waiting import until
from kube import request
from kube.request import CONFIGMAPS, NODES
from policy.names import POLICY_CONFIGMAP, SYSTEM_NAMESPACE
from runtime import certs, clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

RULES = Path(__file__).parents[1] / "deploy" / "monitoring" / "rules.yaml"
_START_S = 30.0
_FIRES_S = 60.0
_CALM_S = 180.0
_HANG_S = 33.0
"""Longer than ReclaimSlow allows, shorter than ServiceStarved."""
_SOME, _MANY = 24, 60
"""Services of which twelve find free room, and the others take places of trainers: some, and nearly all."""
_MOST_BURSTS = 12


@dataclass(frozen=True, slots=True)
class Alerts:
    """A Prometheus that scrapes EDL's servers."""

    address: str

    def firing(self) -> set[str]:
        """Names of the alerts that fire now."""
        alerts = self._ask("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def scraped(self) -> int:
        """Number of servers whose newest scrape succeeded."""
        result = self._ask("query?query=sum(up)")["result"]
        return int(result[0]["value"][1]) if result else 0

    def _ask(self, path: str) -> Any:
        """Returns the data of an answer.

        Raises:
            HTTPError: there is none; while Prometheus starts it answers 503 with a text.
        """
        with urllib3.PoolManager(timeout=30.0) as pool:
            answer = pool.request("GET", f"http://{self.address}/api/v1/{path}", retries=False)
        if answer.status != HTTPStatus.OK:
            raise urllib3.exceptions.HTTPError(f"{path}: {answer.status}")
        return json.loads(answer.data)["data"]

    def wait_fires(self, alert: str, within_s: float) -> float:
        """Waits until an alert fires, and checks that no other does; returns the seconds."""
        begun_s = clock.monotonic_s()
        firing = until("an alert fires", self.firing, bool, within_s)
        assert firing == {alert}
        return clock.monotonic_s() - begun_s

    def wait_calm(self) -> None:
        """Waits until none fires."""
        until("no alert fires", self.firing, lambda alerts: not alerts, _CALM_S)


@pytest.fixture(scope="module")
def alerts(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alerts]:
    """Prometheus for the tests of this module."""
    with _prometheus(environment, tmp_path_factory.mktemp("prometheus")) as prometheus:
        yield prometheus


@pytest.fixture
def new_alerts(environment: Environment, tmp_path: Path) -> Iterator[Alerts]:
    """Prometheus that knows nothing of what other tests did in the minutes before."""
    with _prometheus(environment, tmp_path) as prometheus:
        yield prometheus


@contextmanager
def _prometheus(environment: Environment, directory: Path) -> Iterator[Alerts]:
    """Prometheus with EDL's rules, as docs/operating.md sets it up."""
    binary = build.ensure(build.cache_root(os.environ), kit=PROMETHEUS).path("prometheus")
    targets = [
        urlsplit(environment.control_plane.probe_url(name)).netloc for name in EDL_COMPONENTS
    ]
    configuration = {
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": "edl",
                "scrape_interval": "5s",
                "scrape_timeout": "4s",
                "static_configs": [{"targets": targets}],
            }
        ],
    }
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    words = [
        *(str(binary), f"--config.file={directory / 'prometheus.yaml'}"),
        *(f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={address}"),
    ]
    process = Process("prometheus", words, directory / "prometheus.log", cwd=directory)
    try:
        prometheus = Alerts(address)
        until("Prometheus scrapes", lambda: _scraped(prometheus), lambda n: n == 3, _START_S)
        prometheus.wait_calm()
        yield prometheus
    finally:
        process.kill()


def _scraped(prometheus: Alerts) -> int:
    try:
        return prometheus.scraped()
    except urllib3.exceptions.HTTPError:
        return 0


@pytest.mark.parametrize(
    ("server", "alert"),
    [
        ("webhook", "WebhookDown"),
        ("extender", "ExtenderDown"),
        ("reconciler", "ReconcilerDown"),
    ],
)
def test_a_server_that_is_killed_fires_its_alert(
    environment: Environment,
    alerts: Alerts,
    server: str,
    alert: str,
    report: Callable[[str], None],
) -> None:
    """Within a minute; when it is back, the alert ends."""
    environment.control_plane.kill(server)
    try:
        seconds = alerts.wait_fires(alert, _FIRES_S)
    finally:
        environment.restore()
    alerts.wait_calm()

    report(f"{alert} after {seconds:.0f} s")


def test_a_certificate_that_ends_soon_fires_its_alert(
    environment: Environment, alerts: Alerts, report: Callable[[str], None]
) -> None:
    """The extender's has a week left; with another one the alert ends."""
    issued = clock.now() - certs.LEAF_LIFE + timedelta(days=7)
    begun_s = clock.monotonic_s()
    with extender_certificate(environment, issued):
        alerts.wait_fires("CertificateExpiring", _FIRES_S)
        seconds = clock.monotonic_s() - begun_s
    alerts.wait_calm()

    report(f"CertificateExpiring after {seconds:.0f} s")


def test_a_policy_that_is_deleted_fires_its_alert(
    environment: Environment, alerts: Alerts, report: Callable[[str], None]
) -> None:
    """The one before stays in force; the webhook cannot refuse a deletion."""
    stored = environment.send(request.get(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP))
    environment.send(request.delete(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP))
    try:
        seconds = alerts.wait_fires("PolicyRejected", _FIRES_S)
    finally:
        body = {"metadata": {"name": POLICY_CONFIGMAP}, "data": stored["data"]}
        environment.send(request.create(CONFIGMAPS, SYSTEM_NAMESPACE, body))
    alerts.wait_calm()

    report(f"PolicyRejected after {seconds:.0f} s")


def test_a_service_that_nobody_places_fires_its_alert(
    namespace: IsolatedNamespace, alerts: Alerts, report: Callable[[str], None]
) -> None:
    """While kube-scheduler is away; the seconds count from the creation of the pod."""
    cluster = namespace.environment.cluster
    cluster.kill("kube-scheduler")
    try:
        namespace.services(1)
        seconds = alerts.wait_fires("ServiceStarved", _FIRES_S)
    finally:
        cluster.start("kube-scheduler")
    alerts.wait_calm()

    report(f"ServiceStarved after {seconds:.0f} s")


def test_a_lost_node_fires_the_alert_of_its_jobs(
    namespace: IsolatedNamespace, alerts: Alerts, report: Callable[[str], None]
) -> None:
    """Where no other node has room for the trainers of the minimum."""
    environment = namespace.environment
    nodes = environment.send(request.list_page(NODES))["items"]
    namespace.submit("wide", low=len(nodes), high=len(nodes), cpu="13")
    until(
        "trainers run",
        lambda: sum(pod.phase == "Running" for pod in environment.pods.now(namespace.name)),
        lambda count: count == len(nodes),
        _START_S,
    )
    alerts.wait_calm()
    name = nodes[0]["metadata"]["name"]
    environment.send(request.delete(NODES, None, name))
    try:
        seconds = alerts.wait_fires("JobBelowMin", _FIRES_S)
    finally:
        environment.send(request.create(NODES, None, node(name)))
    alerts.wait_calm()

    report(f"JobBelowMin after {seconds:.0f} s")


def test_an_api_server_that_hangs_fires_its_alert(
    environment: Environment, alerts: Alerts, report: Callable[[str], None]
) -> None:
    """Within a minute, and ends soon after."""
    process = environment.cluster.pid("kube-apiserver")
    os.kill(process, signal.SIGSTOP)
    try:
        seconds = alerts.wait_fires("WatchStale", _FIRES_S)
    finally:
        os.kill(process, signal.SIGCONT)
    until("it ends", alerts.firing, lambda firing: "WatchStale" not in firing, _CALM_S)

    report(f"WatchStale after {seconds:.0f} s")


def test_services_that_come_and_go_fire_the_alert_of_thrash(
    namespace: IsolatedNamespace, alerts: Alerts, report: Callable[[str], None]
) -> None:
    """Again and again they take nearly the whole cluster, and end as soon as they run.

    It fires for minutes, so no test after this one has the same Prometheus.
    """
    fill(namespace, "one", "two")
    begun_s = clock.monotonic_s()
    for _ in range(_MOST_BURSTS):
        namespace.services(_MANY)
        namespace.wait_services(_MANY, _START_S)
        namespace.services(0)
        until(
            "trainers come back, or the alert fires",
            lambda: (alerts.firing(), namespace.running("one") + namespace.running("two")),
            lambda state: bool(state[0]) or state[1] > SLOTS // 2,
            _CALM_S,
        )
        if alerts.firing():
            break
    alerts.wait_fires("Thrash", _FIRES_S)

    report(f"Thrash after {clock.monotonic_s() - begun_s:.0f} s")


def test_kubelets_that_hang_fire_the_alert_of_slow_reclaims(
    namespace: IsolatedNamespace, new_alerts: Alerts, report: Callable[[str], None]
) -> None:
    """For more than the half minute that the alert has in mind: trainers leave late."""
    fill(namespace, "one", "two")
    begun_s = clock.monotonic_s()
    with stopped(partial(os.kill, namespace.environment.cluster.pid(KWOK))):
        namespace.services(_SOME)
        time.sleep(_HANG_S)
    left_s = _FIRES_S - (clock.monotonic_s() - begun_s)
    new_alerts.wait_fires("ReclaimSlow", left_s)

    report(f"ReclaimSlow after {clock.monotonic_s() - begun_s:.0f} s")
