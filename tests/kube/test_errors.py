"""HTTP answers as errors."""

import orjson
import pytest

from kube import errors


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, errors.KubeError),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (408, errors.Unavailable),
        (409, errors.Conflict),
        (410, errors.Gone),
        (415, errors.KubeError),
        (422, errors.Invalid),
        (429, errors.TooManyRequests),
        (500, errors.Unavailable),
        (503, errors.Unavailable),
        (504, errors.Unavailable),
    ],
)
def test_each_status_has_its_error(code: int, kind: type[errors.KubeError]) -> None:
    """The class follows from the HTTP status; other statuses are plain KubeErrors."""
    body = orjson.dumps({"kind": "Status", "message": "why", "reason": "Because"})
    error = errors.from_response(code, body, "GET /x")

    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (code, "Because", "why")
    assert str(error) == f"GET /x: {code}: why"
    assert error.kind == kind.__name__


def test_a_taken_name_is_told_from_a_conflict() -> None:
    """Both are 409; the reason tells them apart."""
    error = errors.from_status({"code": 409, "reason": "AlreadyExists", "message": "m"})

    assert type(error) is errors.AlreadyExists


@pytest.mark.parametrize("body", [b"", b"[1]", b"<html>\n bad gateway", b'{"a": 1}', b"\xff"])
def test_any_body_will_do(body: bytes) -> None:
    """A proxy in between may answer anything; the status still counts."""
    error = errors.from_response(502, body, "GET /x")

    assert type(error) is errors.Unavailable
    assert "\n" not in str(error)


def test_texts_are_cut_to_a_line() -> None:
    """No body gets into a log in full."""
    error = errors.from_response(500, b"secret " * 1000, "GET /x")

    assert len(str(error)) < 400


def test_the_wait_that_a_server_asks_for() -> None:
    """The maximum of header and details; dates are not supported."""
    body = orjson.dumps({"kind": "Status", "details": {"retryAfterSeconds": 7}})

    assert errors.from_response(429, body, "", "3").retry_after_s == 7
    assert errors.from_response(429, body, "", "30").retry_after_s == 30
    assert errors.from_response(429, b"", "", "Wed, 21 Oct 2026").retry_after_s == 0


def test_a_status_without_anything_is_the_servers_failure() -> None:
    """An ERROR event may carry next to nothing."""
    error = errors.from_status({})

    assert type(error) is errors.Unavailable
    assert str(error) == "API request: 500: no reason given"
    assert str(errors.Unavailable("lost")) == "API request: no answer: lost"
