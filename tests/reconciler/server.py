"""An API server in memory that is looked at when a test says so: no watch threads, no waiting."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import jsonpatch
import orjson

from kube import errors, request
from kube.cache import ClusterCache
from kube.fake import FakeApi
from kube.fake.streams import FakeStream
from kube.request import PODS, SERVICES, Request
from policy.model import Policy
from policy.mutation import EDL_CLASSES, pod_patch
from policy.names import LABEL_MASTER, LABEL_SERVER

START_S = 1_800_000_000.0


class Clock:
    """Time that moves when it is told to; wall clock and monotonic clock are one."""

    def __init__(self) -> None:
        self.now_s = START_S

    def seconds(self) -> float:
        """For clocks in seconds."""
        return self.now_s

    def now(self) -> datetime:
        """For stamps."""
        return datetime.fromtimestamp(self.now_s, UTC)

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        self.now_s += seconds


class Instant:
    """An `Api` over the fake server whose watches give what there is, a bookmark, and end.

    Pods get the priority of their class, and are refused where it does not exist, as the
    Priority admission plugin does, and where a container has no image. Writes are kept, in order,
    for tests to look at.
    """

    def __init__(self, clock: Clock) -> None:
        self.fake = FakeApi(wall=clock.now, clock_s=clock.seconds)
        self.writes: list[Request] = []
        self.webhook = True
        """Whether EDL's webhook adds what only it knows to pods that are marked for it."""
        self.pods_made: dict[str, str] = {}
        """uid -> name of every pod that was created here, whether or not the answer arrived."""

    def send(self, asked: Request) -> bytes:
        """See `kube.client.Api`."""
        if asked.method != "GET":
            self.writes.append(asked)
        if asked.method == "POST" and asked.path.endswith("/pods"):
            return self._make_pod(asked)
        if asked.method == "POST" and asked.path.endswith("/services"):
            body = orjson.loads(asked.body)
            body["spec"]["clusterIP"] = f"10.96.0.{len(self.all(SERVICES)) + 1}"
            return self.fake.send(replace(asked, body=orjson.dumps(body)))
        return self.fake.send(asked)

    def _make_pod(self, asked: Request) -> bytes:
        body = self._admitted(orjson.loads(asked.body))
        metadata = body["metadata"]
        if any(not container.get("image") for container in body["spec"]["containers"]):
            text = f'Pod "{metadata["name"]}" is invalid: spec.containers[0].image: Required value'
            raise errors.Invalid(text, status=422, reason="Invalid")
        try:
            return self.fake.send(replace(asked, body=orjson.dumps(body)))
        finally:
            with suppress(errors.KubeError):
                there = self.ask(request.get(PODS, metadata["namespace"], metadata["name"]))
                self.pods_made[there["metadata"]["uid"]] = metadata["name"]

    def _admitted(self, pod: dict[str, Any]) -> dict[str, Any]:
        name = pod["spec"].get("priorityClassName")
        if name is None:
            return pod
        try:
            found = self.ask(request.get(request.PRIORITYCLASSES, None, name))
        except errors.NotFound as error:
            text = f"no PriorityClass with name {name} was found"
            raise errors.Forbidden(text, status=403, reason="Forbidden") from error
        filled = {"priority": found["value"], "preemptionPolicy": found["preemptionPolicy"]}
        pod = {**pod, "spec": {**pod["spec"], **filled}}
        marks = {LABEL_MASTER, LABEL_SERVER} & pod["metadata"].get("labels", {}).keys()
        if not (self.webhook and marks):
            return pod
        change = pod_patch(pod, pod["metadata"]["namespace"], Policy(), EDL_CLASSES, "edl")
        patched: dict[str, Any] = jsonpatch.JsonPatch(list(change.operations)).apply(pod)
        return patched

    @contextmanager
    def stream(self, asked: Request) -> Iterator[FakeStream]:
        """See `kube.client.Api`."""
        query = tuple((k, "0" if k == "timeoutSeconds" else v) for k, v in asked.query)
        with self.fake.stream(replace(asked, query=query)) as stream:
            stream.bookmark()
            yield stream

    def ask(self, asked: Request) -> Any:
        """The answer, decoded; not kept as a write."""
        return orjson.loads(self.fake.send(asked))

    def all(self, resource: request.Resource) -> list[Any]:
        """Every object of a kind."""
        items: list[Any] = self.ask(request.list_page(resource, limit=0))["items"]
        return items


def look(cache: ClusterCache) -> None:
    """Lets `cache` see everything that happened up to now."""
    for reflector in cache.reflectors.values():
        reflector.follow_once()


def of(method: str, ending: str) -> Callable[[Request], bool]:
    """Matches requests by method and by how their path ends."""
    return lambda asked: asked.method == method and asked.path.endswith(ending)
