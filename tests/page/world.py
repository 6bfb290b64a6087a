"""The page on a synthetic cluster in memory that is read when a test does so: no threads, no waiting."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import orjson
from werkzeug.test import TestResponse

from bench.page_cluster import CALLERS, LiveCluster, Rights
from kube.request import Request
from lab.fake_api.streams import FakeStream
from page.access import Access
from page.sections import Section, Subscription, events
from page.service import Watches, application
from page.settings import PageSettings
from policy.names import SYSTEM_NAMESPACE

START_S = 1_800_000_000.0
ALL = Access("admin", None, cluster=True)
VISION = Access("vision", frozenset({"ml-vision"}))


class PageWorld:
    """A cluster, what the page knows of it, and its application."""

    def __init__(self, nodes: int = 10, **settings: Any) -> None:
        self.now_s = START_S
        self.callers: dict[str, Rights] = dict(CALLERS)
        self.cluster = LiveCluster(nodes, lambda: self.now_s)
        self.cluster.callers = self.callers
        self._settings = PageSettings(**settings)
        self.restart()

    def restart(self) -> None:
        """Begins with a new process of the page, which has looked at nothing yet."""
        self.watches = Watches.of(
            Instantly(self.cluster), SYSTEM_NAMESPACE, lambda: self.now_s, lambda: self.now_s
        )
        self.view = self.watches.view
        self.app = application(
            self._settings,
            self.watches,
            self.cluster.with_token,
            lambda: self.now_s,
        )

    def look(self) -> None:
        """Lets the page take in all that has happened."""
        reflectors = {**self.watches.cache.reflectors, "logs": self.watches.logs.reflector}
        for reflector in reflectors.values():
            reflector.follow_once()
        self.view.update()

    def pass_time(self, seconds: float = 5.0) -> None:
        """Lets time pass, and the records that wait be written."""
        self.now_s += seconds
        self.cluster.write()

    def get(self, path: str, caller: str = "admin", **headers: str) -> TestResponse:
        """The answer to a call."""
        words = {"Authorization": f"Bearer {caller}"} if caller else {}
        return self.app.test_client().get(path, headers={**words, **headers})

    def json(self, path: str, caller: str = "admin") -> Any:
        """The JSON of a call that succeeds."""
        answer = self.get(path, caller)
        assert answer.status_code == 200, answer.text
        return answer.json

    def events(
        self, *sections: Section, access: Access = ALL, since: int | None = None, **fields: str
    ) -> list[tuple[str, dict[str, Any]]]:
        """(event, data) of what a stream sends."""
        subscription = Subscription(access, sections, **fields)
        return parse(b"\n".join(events(self.view, subscription, since)).decode())

    @property
    def job(self) -> str:
        """Key of a job of the namespace that `vision` sees."""
        return min(key for key in self.cluster.jobs if key.startswith("ml-vision/"))

    @property
    def other_job(self) -> str:
        """Key of a job that it does not see."""
        return min(key for key in self.cluster.jobs if not key.startswith("ml-vision/"))


class Instantly:
    """The API server, whose watches give what there is and end."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster

    def send(self, request: Request) -> bytes:
        """See `kube.api.Api`."""
        return self._cluster.send(request)

    @contextmanager
    def stream(self, request: Request) -> Iterator[FakeStream]:
        """See `kube.api.Api`."""
        query = tuple((k, "0" if k == "timeoutSeconds" else v) for k, v in request.query)
        with self._cluster.stream(replace(request, query=query)) as stream:
            stream.bookmark()
            yield stream


def parse(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream; comments and ids are left out."""
    parsed = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if "data" in fields:
            parsed.append((fields["event"], orjson.loads(fields["data"])))
    return parsed


def rows_of(parsed: Sequence[tuple[str, Mapping[str, Any]]], event: str) -> list[Any]:
    """The rows of all events of a name."""
    return [row for name, data in parsed if name == event for row in data["rows"]]
