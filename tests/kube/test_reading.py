"""Reading of whole collections, and of the API server's time."""

from datetime import UTC, datetime

import orjson
import pytest

from kube import reading, request
from kube.api import Api
from kube.request import CONFIGMAPS, Request
from lab.fake_api import FakeApi


class Server(FakeApi):
    """Answers a review of oneself."""

    created = datetime(2030, 5, 1, 12, tzinfo=UTC).isoformat()

    def send(self, request: Request) -> bytes:
        """With the time, as authentication.k8s.io/v1 does."""
        if request.path == "/apis/authentication.k8s.io/v1/selfsubjectreviews":
            return orjson.dumps({"metadata": {"creationTimestamp": self.created}})
        return super().send(request)


def test_all_pages_of_a_kind_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one namespace or of all, by label."""
    monkeypatch.setattr(request, "PAGE", 2)
    api: Api = FakeApi()
    for number in range(5):
        labels = {"odd": str(number % 2)}
        body = {"metadata": {"name": f"c-{number}", "labels": labels}}
        api.send(request.create(CONFIGMAPS, "ml" if number else "other", body))

    def names(*words: str, **selectors: str) -> list[str]:
        objects = reading.list_all(api, CONFIGMAPS, *words, **selectors)
        return [obj["metadata"]["name"] for obj in objects]

    assert len(names()) == 5
    assert names("other") == ["c-0"]
    assert names("ml", labels="odd=1") == ["c-1", "c-3"]
    assert names("ml", fields="metadata.name=c-4") == ["c-4"]


def test_the_api_servers_time_is_that_of_a_review() -> None:
    """0 where it does not say."""
    server = Server()
    assert reading.server_time_s(server) == datetime(2030, 5, 1, 12, tzinfo=UTC).timestamp()
    server.created = ""
    assert reading.server_time_s(server) == 0.0
