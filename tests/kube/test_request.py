"""Requests are plain values: path, query and body can be looked at."""

import orjson
import pytest

from kube import request
from kube.request import CONFIGMAPS, JOBS, NODES, PODS, PRIORITYCLASSES, Request


def test_paths_follow_group_and_namespace() -> None:
    """Core kinds live under /api, the others under /apis; namespaces come before the kind."""
    assert request.get(PODS, "a", "b").path == "/api/v1/namespaces/a/pods/b"
    assert request.get(NODES, None, "b").path == "/api/v1/nodes/b"
    assert request.get(NODES, "ignored", "b").path == "/api/v1/nodes/b"
    assert request.list_page(JOBS).path == "/apis/batch/v1/jobs"
    assert request.list_page(JOBS, "a").path == "/apis/batch/v1/namespaces/a/jobs"
    assert request.get(PRIORITYCLASSES, None, "x").path == (
        "/apis/scheduling.k8s.io/v1/priorityclasses/x"
    )


def test_names_cannot_leave_their_place() -> None:
    """Names that would change the path are quoted or refused."""
    assert request.get(PODS, "a/../b", "c?d").path == "/api/v1/namespaces/a%2F..%2Fb/pods/c%3Fd"
    for name in ("", ".", ".."):
        with pytest.raises(ValueError, match="is not a valid object name"):
            request.get(PODS, "a", name)
        with pytest.raises(ValueError, match="is not a valid object name"):
            request.get(PODS, name, "a")


def test_a_namespaced_object_needs_its_namespace() -> None:
    """Only lists and watches may span all of them."""
    with pytest.raises(ValueError, match="pods/x: a namespace is missing"):
        request.get(PODS, None, "x")
    with pytest.raises(ValueError, match="create pods: a namespace is missing"):
        request.create(PODS, None, {})


def test_a_page_is_asked_for_by_its_token() -> None:
    """Empty parts of the query are left out; the target is quoted."""
    list_request = request.list_page(PODS, limit=5, token="a=b", field_selector="x!=y")  # noqa: S106 - of a page

    assert list_request.query == (("limit", "5"), ("continue", "a=b"), ("fieldSelector", "x!=y"))
    assert list_request.target == "/api/v1/pods?limit=5&continue=a%3Db&fieldSelector=x%21%3Dy"
    assert list_request.line == "GET /api/v1/pods"
    assert request.list_page(PODS, limit=0).query == ()


def test_a_watch_wants_bookmarks_and_waits_longer() -> None:
    """The read timeout is above the gap between two bookmarks."""
    watch_request = request.watch(
        PODS, "a", resource_version="7", timeout_s=250, label_selector="l"
    )

    assert dict(watch_request.query) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "250",
        "labelSelector": "l",
    }
    assert watch_request.timeout_s > 60


def test_bodies_say_what_they_are() -> None:
    """Both apiVersion and kind are filled in, for creations and replacements."""
    create_request = request.create(JOBS, "a", {"metadata": {"name": "x"}})
    put = request.replace(JOBS, "a", "x", {"spec": {}}, subresource="status")

    assert orjson.loads(create_request.body) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "x"},
    }
    assert put.path.endswith("/jobs/x/status")
    assert orjson.loads(put.body)["kind"] == "Job"


def test_patches_differ_by_content_type() -> None:
    """The content type tells the server how to read the body."""
    merge = request.merge_patch(CONFIGMAPS, "a", "x", {"data": {"k": None}})
    ops = request.json_patch(CONFIGMAPS, "a", "x", [{"op": "remove", "path": "/data"}])

    assert merge.content_type == "application/merge-patch+json"
    assert ops.content_type == "application/json-patch+json"
    assert orjson.loads(ops.body) == [{"op": "remove", "path": "/data"}]


def test_deletions_carry_preconditions() -> None:
    """Only the given ones are included."""
    plain = orjson.loads(request.delete(PODS, "a", "x").body)
    strict = orjson.loads(request.delete(PODS, "a", "x", uid="u", grace_s=0).body)

    assert "preconditions" not in plain
    assert "gracePeriodSeconds" not in plain
    assert strict["preconditions"] == {"uid": "u"}
    assert strict["gracePeriodSeconds"] == 0


def test_an_eviction_is_posted_to_the_pod() -> None:
    """policy/v1, with the delete options inside."""
    eviction = request.evict("a", "x", uid="u", grace_s=5)
    body = orjson.loads(eviction.body)

    assert eviction.path == "/api/v1/namespaces/a/pods/x/eviction"
    assert (body["apiVersion"], body["kind"]) == ("policy/v1", "Eviction")
    assert body["deleteOptions"]["preconditions"] == {"uid": "u"}
    assert body["deleteOptions"]["gracePeriodSeconds"] == 5


def test_equal_requests_are_equal() -> None:
    """Requests are compared by value."""
    assert Request("GET", "/x") == Request("GET", "/x")
    assert len({Request("GET", "/x"), Request("GET", "/x")}) == 1
