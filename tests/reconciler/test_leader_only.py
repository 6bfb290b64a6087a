import orjson
import pytest

from kube import errors, request
from kube.request import CONFIGMAPS
from lab.fake_api import FakeApi
from reconciler.leader_only import LeaderOnlyApi

MAKE = request.create(CONFIGMAPS, "n", {"metadata": {"name": "a"}})
WATCH = request.watch(CONFIGMAPS, "n", resource_version="0", timeout_s=0)


def test_a_leader_passes() -> None:
    """Writes as well as watches."""
    fence = LeaderOnlyApi(FakeApi(), lambda: True)
    fence.send(MAKE)
    with fence.stream(WATCH) as stream:
        (line,) = list(stream)

    assert orjson.loads(line)["object"]["metadata"]["name"] == "a"


def test_who_does_not_lead_sends_nothing() -> None:
    """The error names the request, which never reaches the API server."""
    api = FakeApi()
    fence = LeaderOnlyApi(api, lambda: False)
    with pytest.raises(errors.Unavailable, match="does not lead") as refused:
        fence.send(MAKE)
    with pytest.raises(errors.Unavailable, match="does not lead"):
        fence.stream(WATCH)

    assert "POST /api/v1/namespaces/n/configmaps" in str(refused.value)
    assert orjson.loads(api.send(request.list_page(CONFIGMAPS)))["items"] == []


def test_the_end_of_each_request_is_noted() -> None:
    """That of one that fails, too, but not of one that was never sent."""
    leads, ends = [True], list[str]()
    fence = LeaderOnlyApi(FakeApi(), lambda: leads[0], on_end=lambda: ends.append("request"))
    fence.send(MAKE)
    with pytest.raises(errors.AlreadyExists):
        fence.send(MAKE)
    leads[0] = False
    with pytest.raises(errors.Unavailable):
        fence.send(MAKE)

    assert ends == ["request"] * 2
