import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.errors import Forbidden
from kube.fake import FakeApi
from tests.webhook.cluster import with_classes, with_registrations
from tests.webhook.vectors import review
from tests.webhook.waiting import until
from webhook.server import Server, first_certificate
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
def server(api: FakeApi, settings: WebhookSettings) -> Iterator[Server]:
    """A started webhook without its socket."""
    made = Server(api, settings, managed=True)
    made.start()
    yield made
    made.stop()


def test_ready_once_policy_and_classes_are_known(api: FakeApi, settings: WebhookSettings) -> None:
    """Before the first lists a review would decide on nothing, so nobody should ask."""
    server = Server(api, settings, managed=False)
    before = server.readiness()
    server.start()
    until(lambda: server.readiness().ready)
    server.stop()

    assert not before.ready
    assert before.details["synced"] == {"configmaps": False, "priorityclasses": False}
    assert "certificate" not in server.readiness().details


def test_routes_decide_on_live_classes(server: Server) -> None:
    """A review is answered with the cluster's priority classes; details show the policy."""
    client = server.service().app.test_client()
    until(lambda: server.readiness().ready)
    answer = client.post("/mutate", json=review("pod-create-trainer"))
    ready = client.get("/readyz")

    assert answer.json is not None
    assert "warnings" not in answer.json["response"]
    assert ready.json is not None
    assert ready.json["policy"]["source"] == "default"


def test_metrics_show_policy_and_certificate(server: Server) -> None:
    """The active version and the certificate's end are there to be scraped."""
    assert server.keeper is not None
    until(server.keeper.file.exists)
    until(lambda: server.keeper is not None and server.keeper.kept.expires)

    text = server.metrics.text().decode()

    assert 'edl_webhook_policy_info{source="default",stale="false",version="' in text
    assert "edl_webhook_certificate_expiry_seconds 1." in text


def test_certificate_of_no_round_has_no_end(api: FakeApi, settings: WebhookSettings) -> None:
    """Until the first round the gauge is 0, which an alert can tell from a date."""
    server = Server(api, settings, managed=True)

    assert "edl_webhook_certificate_expiry_seconds 0.0" in server.metrics.text().decode()
    assert server.readiness().details["certificate"] == {"expires": None, "error": ""}


def test_stop_leaves_no_thread(api: FakeApi, settings: WebhookSettings) -> None:
    """Watches and keeper end together."""
    before = set(threading.enumerate())
    server = Server(api, settings, managed=True)
    server.start()
    until(lambda: server.readiness().ready)
    server.stop()

    until(lambda: set(threading.enumerate()) <= before)


def test_first_certificate_is_made(settings: WebhookSettings) -> None:
    """Before it serves, the webhook has a file to serve with."""
    file = first_certificate(with_registrations(), settings)

    assert file.read_bytes().count(b"BEGIN") == 2


def test_file_from_before_is_good_enough(settings: WebhookSettings) -> None:
    """A restart while the API server is down serves with what is there."""
    made = first_certificate(FakeApi(), settings)
    down = FakeApi()
    down.faults.fail_next(Forbidden("down"), 99)

    assert first_certificate(down, settings) == made
