"""An API server in memory that is read when a test does so: no watch threads, no waiting."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from threading import Lock
from typing import Any

import jsonpatch
import orjson

from kube import decode, errors, request
from kube.cache import ClusterCache
from kube.request import PODS, SERVICES, Request
from lab.fake_api import FakeApi
from lab.fake_api.streams import FakeStream
from policy.admission.mutation import pod_patch
from policy.cluster.snapshot import Pod
from policy.document.model import Policy
from policy.names import LABEL_MASTER, LABEL_SERVER
from policy.priority_classes import EDL_CLASSES

START_S = 1_800_000_000.0


class Clock:
    """Time that a test advances; wall clock and monotonic clock are the same."""

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
        self._admitting = Lock()  # a quota is checked for one pod after the other, as upstream
        self.dry_runs: list[Request] = []
        """Dry runs, which are no writes."""
        self.webhook = True
        """Whether EDL's webhook adds image and master to pods that are marked for them."""
        self.admission: list[Callable[[dict[str, Any]], dict[str, Any]]] = []
        """Further plugins, in order; see `tests.reconciler.admission`."""
        self.pods_made: dict[str, str] = {}
        """uid -> name of every pod that was created here, whether or not the answer arrived."""
        self._pods: tuple[int, dict[tuple[str, str], Pod]] = (0, {})
        """The version of the newest write, and the pods after it, by uid and version."""

    def send(self, api_request: Request) -> bytes:
        """See `kube.api.Api`."""
        if ("dryRun", "All") in api_request.query:
            self.dry_runs.append(api_request)
        elif api_request.method != "GET":
            self.writes.append(api_request)
        if api_request.method == "POST" and api_request.path.endswith("/pods"):
            with self._admitting if self.admission else nullcontext():
                return self._make_pod(api_request)
        if api_request.method == "POST" and api_request.path.endswith("/services"):
            body = orjson.loads(api_request.body)
            body["spec"]["clusterIP"] = f"10.96.0.{len(self.all(SERVICES)) + 1}"
            return self.fake.send(replace(api_request, body=orjson.dumps(body)))
        return self.fake.send(api_request)

    def _make_pod(self, api_request: Request) -> bytes:
        body = self._admitted(orjson.loads(api_request.body))
        for plugin in self.admission:
            body = plugin(body)
        metadata = body["metadata"]
        if any(not container.get("image") for container in body["spec"]["containers"]):
            text = f'Pod "{metadata["name"]}" is invalid: spec.containers[0].image: Required value'
            raise errors.Invalid(text, status=422, reason="Invalid")
        if ("dryRun", "All") in api_request.query:
            return self.fake.send(replace(api_request, body=orjson.dumps(body)))
        try:
            return self.fake.send(replace(api_request, body=orjson.dumps(body)))
        finally:
            with suppress(errors.KubeError):
                created = self.ask(request.get(PODS, metadata["namespace"], metadata["name"]))
                self.pods_made[created["metadata"]["uid"]] = metadata["name"]

    def _admitted(self, pod: dict[str, Any]) -> dict[str, Any]:
        name = pod["spec"].get("priorityClassName")
        if name is None:
            return pod
        try:
            priority_class = self.ask(request.get(request.PRIORITYCLASSES, None, name))
        except errors.NotFound as error:
            text = f"no PriorityClass with name {name} was found"
            raise errors.Forbidden(text, status=403, reason="Forbidden") from error
        filled = {
            "priority": priority_class["value"],
            "preemptionPolicy": priority_class["preemptionPolicy"],
        }
        pod = {**pod, "spec": {**pod["spec"], **filled}}
        marks = {LABEL_MASTER, LABEL_SERVER} & pod["metadata"].get("labels", {}).keys()
        if not (self.webhook and marks):
            return pod
        change = pod_patch(pod, pod["metadata"]["namespace"], Policy(), EDL_CLASSES, "edl")
        patched: dict[str, Any] = jsonpatch.JsonPatch(list(change.operations)).apply(pod)
        return patched

    @contextmanager
    def stream(self, api_request: Request) -> Iterator[FakeStream]:
        """See `kube.api.Api`."""
        query = tuple((k, "0" if k == "timeoutSeconds" else v) for k, v in api_request.query)
        with self.fake.stream(replace(api_request, query=query)) as stream:
            stream.bookmark()
            yield stream

    def ask(self, api_request: Request) -> Any:
        """The answer, decoded; not kept as a write."""
        return orjson.loads(self.fake.send(api_request))

    def all(self, resource: request.Resource) -> list[Any]:
        """Every object of a kind, not to be changed."""
        return self.fake.stored(resource)

    def pods(self) -> list[Pod]:
        """Every pod; those that have not changed since the last call are not decoded again."""
        version, pods = self._pods
        if version != self.fake.version:
            version, old = self.fake.version, pods
            pods = {}
            for obj in self.all(PODS):
                key = (obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])
                pods[key] = old.get(key) or decode.pod(obj)
            self._pods = (version, pods)
        return list(pods.values())


def look(cache: ClusterCache) -> None:
    """Lets `cache` see everything that happened up to now."""
    for reflector in cache.reflectors.values():
        reflector.follow_once()


def of(method: str, ending: str) -> Callable[[Request], bool]:
    """Matches requests by method and by how their path ends, but for dry runs."""

    def matches(api_request: Request) -> bool:
        is_asked = api_request.method == method and api_request.path.endswith(ending)
        return is_asked and ("dryRun", "All") not in api_request.query

    return matches
