import base64
import json

import pytest

from tests.webhook.vectors import NAMES, review
from webhook import review as reviews
from webhook.review import AdmissionResponse, ReviewError


@pytest.mark.parametrize("name", NAMES)
def test_recorded_reviews_are_read(name: str) -> None:
    """Every review in the shape of a real API server is understood."""
    document = review(name)

    request = reviews.read(document)

    assert request.uid == document["request"]["uid"]
    assert request.object == document["request"]["object"]
    assert request.resource_name in ("pods", "jobs.batch", "configmaps")


def test_unknown_fields_are_ignored() -> None:
    """A newer API server may send more fields."""
    document = review("pod-create-service")
    document["request"]["novelty"] = {"a": 1}
    document["novelty"] = 2

    assert reviews.read(document).namespace == "services"


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ([], "body"),
        ({}, "apiVersion: Field required"),
        ({"apiVersion": "admission.k8s.io/v1beta1"}, "apiVersion"),
        ({"apiVersion": "admission.k8s.io/v1", "kind": "Pod"}, "kind"),
        ({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}, "request"),
    ],
)
def test_other_bodies_are_refused_by_field(document: object, where: str) -> None:
    """Anything but an AdmissionReview v1 is refused in one line that names the field."""
    with pytest.raises(ReviewError, match=where) as refused:
        reviews.read(document)

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("field", ["uid", "resource", "operation"])
def test_needed_fields_are_strict(field: str) -> None:
    """Fields that decisions need are required."""
    document = review("pod-create-service")
    document["request"][field] = ""

    with pytest.raises(ReviewError, match=f"request.{field}"):
        reviews.read(document)


def test_consent_is_short() -> None:
    """An answer that changes nothing has neither patch nor patchType."""
    document = reviews.to_json(AdmissionResponse("u1"))

    assert document == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u1", "allowed": True},
    }


def test_patch_is_base64_of_json() -> None:
    """Patch and type come together."""
    operation = {"op": "add", "path": "/a", "value": "ü"}
    answer = AdmissionResponse("u1", operations=(operation,), audit={"tier": "surplus"})

    response = reviews.to_json(answer)["response"]

    assert isinstance(response, dict)
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == [operation]
    assert response["auditAnnotations"] == {"tier": "surplus"}
    assert answer.outcome == "patched"


def test_refusal_says_why() -> None:
    """The message is what kubectl shows; warnings are cut where API servers cut them."""
    answer = AdmissionResponse("u1", allowed=False, message="no", warnings=("w" * 200,))

    response = reviews.to_json(answer)["response"]

    assert isinstance(response, dict)
    assert response["status"] == {"code": 422, "reason": "Invalid", "message": "no"}
    assert response["warnings"] == ["w" * 120]
    assert answer.outcome == "refused"
