import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import webhook.server
from kube import request
from kube.errors import Forbidden
from lab.fake_api import FakeApi
from runtime import certs, clock
from tests.reconciler.waiting import until
from tests.webhook.cluster import put_policy, read, with_classes, with_registrations
from tests.webhook.vectors import review
from webhook import selection
from webhook.certificates import REGISTRATION
from webhook.server import WebhookServer, first_certificate
from webhook.settings import WebhookSettings


@pytest.fixture
def settings(tmp_path: Path) -> WebhookSettings:
    """Settings with a place for the certificate."""
    return WebhookSettings(certificate_dir=tmp_path / "certificate", hosts=("127.0.0.1",))


@pytest.fixture
def api() -> FakeApi:
    """A cluster with our classes."""
    return with_classes()


@pytest.fixture
def server(api: FakeApi, settings: WebhookSettings) -> Iterator[WebhookServer]:
    """A started webhook without its socket."""
    running = WebhookServer(api, settings, managed=True)
    running.start()
    yield running
    running.stop()


def test_ready_once_policy_and_classes_are_known(api: FakeApi, settings: WebhookSettings) -> None:
    """Before the first lists a review has no basis, so the webhook is not ready."""
    server = WebhookServer(api, settings, managed=False)
    before = server.readiness()
    server.start()
    until(lambda: server.readiness().ready)
    server.stop()

    assert not before.ready
    assert before.details["synced"] == dict.fromkeys(
        ("configmaps", "priorityclasses", "scheduling", "deployments"), False
    )
    assert "certificate" not in server.readiness().details


def test_routes_decide_on_live_classes(server: WebhookServer) -> None:
    """A review is answered with the cluster's priority classes; details show the policy."""
    client = server.service().app.test_client()
    until(lambda: server.readiness().ready)
    answer = client.post("/mutate", json=review("pod-create-trainer"))
    ready = client.get("/readyz")

    assert answer.json is not None
    assert "warnings" not in answer.json["response"]
    assert ready.json is not None
    assert ready.json["policy"]["source"] == "default"


def test_metrics_show_policy_and_certificate(server: WebhookServer) -> None:
    """The active version and the certificate's end are there to be scraped."""
    assert server.rotator is not None
    until(server.rotator.file.exists)
    until(lambda: server.rotator is not None and server.rotator.status.expires)

    text = server.metrics.text().decode()

    assert 'edl_webhook_policy_info{source="default",stale="false",version="' in text
    assert "edl_webhook_certificate_expiry_timestamp_seconds 1." in text
    (age,) = [
        line for line in text.splitlines() if line.startswith("edl_webhook_watch_age_seconds ")
    ]
    assert 0.0 <= float(age.rpartition(" ")[2]) < 90.0


def test_every_figure_says_what_it_is(server: WebhookServer) -> None:
    """Every metric has a help text; the client library adds `_created`, kube those of watches."""
    server.service()
    lines = server.metrics.text().decode().splitlines()
    helps = [line for line in lines if line.startswith("# HELP edl_webhook_")]
    help_texts = dict(line.removeprefix("# HELP edl_webhook_").split(" ", 1) for line in helps)

    own = {
        name: text
        for name, text in help_texts.items()
        if not name.startswith("watch_") and not name.endswith("_created")
    }
    assert own == {
        "policy_info": "The policy in force; stale while the cluster's document cannot be used.",
        "certificate_expiry_timestamp_seconds": "When the served certificate ends, in epoch seconds; 0 before the first.",
        "connections_dropped_total": "Connections dropped because of what their peer did or did not do.",
        "reviews_total": "Admission reviews answered.",
        "review_seconds": "Time from the body's last byte to the answer.",
    }


def test_its_service_starts_and_stops_it(api: FakeApi, settings: WebhookSettings) -> None:
    """`runtime.serve` calls start before the first request and stop after the last."""
    before = set(threading.enumerate())
    server = WebhookServer(api, settings, managed=True)
    service = server.service()
    service.start()
    until(lambda: service.app.test_client().get("/readyz").status_code == 200)
    during = set(threading.enumerate()) - before
    service.stop()
    until(lambda: set(threading.enumerate()) <= before)

    assert len(during) >= 5


def test_a_body_that_is_too_large_is_refused(api: FakeApi, settings: WebhookSettings) -> None:
    """The limit is a setting, checked before the body is parsed."""
    small = settings.model_copy(update={"max_body_bytes": 1000})
    client = WebhookServer(api, small, managed=False).service().app.test_client()

    assert client.post("/mutate", json={"a": "x" * 2000}).status_code == 413


def test_a_policy_that_changes_is_published_at_once(settings: WebhookSettings) -> None:
    """The selection of other operators' pods is updated before the next periodic sync."""
    api = with_registrations()
    server = WebhookServer(api, settings, managed=True)
    server.start()

    def published_expressions() -> set[str]:
        entries = read(api, request.MUTATINGWEBHOOKS, REGISTRATION)["webhooks"]
        (entry,) = [entry for entry in entries if entry["name"] == selection.ENTRY]
        return {condition["expression"] for condition in entry["matchConditions"]}

    until(lambda: server.rotator is not None and server.rotator.status.expires is not None)
    assert "team" not in str(published_expressions())
    put_policy(api, "training: [{name: a, labels: {team: red}}]")
    until(lambda: "object.metadata.labels['team'].matches('^red$')" in str(published_expressions()))
    server.stop()


def test_the_certificate_is_for_the_service_and_more(api: FakeApi, tmp_path: Path) -> None:
    """It covers all names that the API server may use, in EDL's namespace."""
    settings = WebhookSettings(certificate_dir=tmp_path, hosts=("10.0.0.1",), namespace="edl")
    file = first_certificate(api, settings)
    cert, key, *_ = file.read_bytes().split(b"-----BEGIN PRIVATE KEY")

    assert file == tmp_path / "server.pem"
    assert key
    assert certs.hosts(cert) == (
        "edl-webhook.edl.svc",
        "edl-webhook.edl.svc.cluster.local",
        "edl-webhook.edl",
        "10.0.0.1",
    )
    expires = certs.expires(cert)
    assert abs(expires - clock.now() - certs.LEAF_LIFE) < timedelta(hours=1)


class Never:
    """An event that is never set; waits take no time and are recorded."""

    waits_s: list[float]

    def wait(self, timeout: float) -> None:
        """See `threading.Event`."""
        self.waits_s.append(timeout)


def test_the_first_certificate_is_waited_for(
    settings: WebhookSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits indefinitely, with pauses of at least a second."""
    api = FakeApi()
    api.faults.fail_next(Forbidden("down"), 6)
    Never.waits_s = []
    monkeypatch.setattr(webhook.server, "Event", Never)
    file = first_certificate(api, settings)

    assert file.exists()
    assert len(Never.waits_s) >= 2
    assert all(1.0 <= wait_s <= 31.0 for wait_s in Never.waits_s)


def test_before_the_first_sync_there_is_no_expiry(api: FakeApi, settings: WebhookSettings) -> None:
    """Before the first sync the gauge is 0, which alerts can distinguish from a date."""
    server = WebhookServer(api, settings, managed=True)

    assert "edl_webhook_certificate_expiry_timestamp_seconds 0.0" in server.metrics.text().decode()
    assert server.readiness().details["certificate"] == {"expires": None, "error": ""}
    assert server.readiness().details["policy"] == server.live_context.active.current.details()


def test_stop_leaves_no_thread(api: FakeApi, settings: WebhookSettings) -> None:
    """Watches and rotator end together."""
    before = set(threading.enumerate())
    server = WebhookServer(api, settings, managed=True)
    server.start()
    until(lambda: server.readiness().ready)
    server.stop()

    until(lambda: set(threading.enumerate()) <= before)


def test_first_certificate_is_made(settings: WebhookSettings) -> None:
    """The webhook has a certificate file before it serves."""
    file = first_certificate(with_registrations(), settings)

    assert file.read_bytes().count(b"BEGIN") == 2


def test_file_from_before_is_good_enough(settings: WebhookSettings) -> None:
    """A restart while the API server is down serves with what is there."""
    first = first_certificate(FakeApi(), settings)
    down = FakeApi()
    down.faults.fail_next(Forbidden("down"), 99)

    assert first_certificate(down, settings) == first
