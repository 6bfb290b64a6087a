from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from policy.document.model import Policy
from policy.priority_classes import EDL_CLASSES
from runtime import web
from runtime.metrics import Metrics
from tests.webhook.vectors import review
from webhook import app
from webhook.review import AdmissionContext


def _application(context: Any) -> tuple[Flask, Metrics]:
    metrics = Metrics("webhook")
    flask = web.application(
        "webhook",
        registry=metrics,
        readiness=lambda: web.Readiness(ready=True),
        max_body_bytes=100_000,
    )
    app.add_routes(flask, context, metrics)
    return flask, metrics


@pytest.fixture
def metrics_and_client() -> tuple[Metrics, FlaskClient]:
    """The routes on a fixed context."""
    flask, metrics = _application(lambda: AdmissionContext(Policy(), EDL_CLASSES))
    return metrics, flask.test_client()


@pytest.fixture
def client(metrics_and_client: tuple[Metrics, FlaskClient]) -> FlaskClient:
    """The same, where the metrics do not matter."""
    return metrics_and_client[1]


def test_mutate_answers_with_a_patch(client: FlaskClient) -> None:
    """POST /mutate answers the review it got, patch included."""
    sent = review("pod-create-trainer")

    answer = client.post("/mutate?timeout=2s", json=sent)

    assert answer.status_code == 200
    assert answer.json is not None
    assert answer.json["kind"] == "AdmissionReview"
    assert answer.json["response"]["uid"] == sent["request"]["uid"]
    assert answer.json["response"]["patchType"] == "JSONPatch"


def test_the_time_to_answer_is_measured(
    metrics_and_client: tuple[Metrics, FlaskClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the body to the response."""
    metrics, client = metrics_and_client
    times = iter([1000.0, 1000.25])
    monkeypatch.setattr(app, "monotonic_s", lambda: next(times))
    client.post("/mutate", json=review("pod-create-trainer"))

    text = metrics.text().decode()
    assert 'edl_webhook_review_seconds_sum{verb="mutate"} 0.25' in text


def test_validate_refuses_with_a_message(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    """POST /validate refuses in the answer, with HTTP 200, and logs why."""
    with caplog.at_level("INFO"):
        answer = client.post("/validate", json=review("configmap-update-policy-bad"))

    assert answer.status_code == 200
    assert answer.json is not None
    assert answer.json["response"]["allowed"] is False
    assert "tears" in answer.json["response"]["status"]["message"]
    assert "tears" in vars(caplog.records[-1])["edl_keys"]["reason"]


def test_consent_is_not_logged(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    """A line per pod that nothing was done to would drown the others."""
    with caplog.at_level("INFO"):
        client.post("/mutate", json=review("pod-create-service"))

    assert caplog.records == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}', 400),
        (b" " * 100_001, 413),
    ],
)
def test_bad_bodies_are_refused_and_serving_goes_on(
    client: FlaskClient, body: bytes, status: int
) -> None:
    """A body that is not a review gets a 4xx as JSON; the next review is answered."""
    refused = client.post("/mutate", data=body, content_type="application/json")
    after = client.post("/mutate", json=review("pod-create-service"))

    assert refused.status_code == status
    assert refused.json is not None
    assert "error" in refused.json
    assert after.status_code == 200


def test_reviews_are_counted(metrics_and_client: tuple[Metrics, FlaskClient]) -> None:
    """Counters exist from the start and tell outcomes apart; time is measured."""
    metrics, client = metrics_and_client
    before = metrics.text().decode()
    client.post("/mutate", json=review("pod-create-trainer"))
    client.post("/validate", json=review("configmap-update-policy-bad"))

    text = metrics.text().decode()

    assert 'edl_webhook_reviews_total{outcome="patched",verb="mutate"} 0.0' in before
    assert 'edl_webhook_reviews_total{outcome="patched",verb="mutate"} 1.0' in text
    assert 'edl_webhook_reviews_total{outcome="refused",verb="validate"} 1.0' in text
    assert 'edl_webhook_review_seconds_count{verb="mutate"} 1.0' in text


def test_failure_inside_is_a_500_that_fails_open() -> None:
    """An internal error gives no review, so that failurePolicy Ignore admits the object."""

    def broken() -> AdmissionContext:
        raise RuntimeError("context is gone")

    answer = (
        _application(broken)[0].test_client().post("/mutate", json=review("pod-create-service"))
    )

    assert answer.status_code == 500
    assert answer.json is not None
    assert "context is gone" not in answer.text


def test_without_a_valid_policy_only_policies_are_reviewed() -> None:
    """The default would let Jobs of protected namespaces be handed over; a policy can be repaired."""
    unusable = AdmissionContext(Policy(), EDL_CLASSES, usable=False)
    client = _application(lambda: unusable)[0].test_client()
    mutation = client.post("/mutate", json=review("pod-create-trainer"))
    repair = client.post("/validate", json=review("configmap-update-policy-bad"))

    assert mutation.status_code == 503
    assert "edl-policy" in str(mutation.json)
    assert repair.status_code == 200
