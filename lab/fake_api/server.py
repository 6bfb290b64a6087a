"""The fake API server: `kube.api.Api` over objects in memory.

Not implemented: admission (webhooks, priorities), garbage collection, controllers, kubelets, field
validation and strategic merge patches. A terminating pod stays until it is deleted with a grace period of
0, which its kubelet would do.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import orjson

from kube import errors
from kube.request import (
    JSON_PATCH,
    MERGE_PATCH,
    PODDISRUPTIONBUDGETS,
    PODS,
    RESOURCES,
    Request,
    Resource,
)
from lab.fake_api import objects
from lab.fake_api.faults import Faults
from lab.fake_api.patches import merged, patched
from lab.fake_api.routes import Route, kinds, route
from lab.fake_api.selectors import check, labels_of, matches, selects
from lab.fake_api.storage import HISTORY, FakeStorage, Key, Object
from lab.fake_api.streams import FakeStream, WatchScope
from runtime import clock

_TOKENS = 100
_WATCH_S = 1800.0
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


class FakeApi:
    """An in-memory API server. Thread-safe."""

    def __init__(
        self,
        *,
        resources: tuple[Resource, ...] = RESOURCES,
        history: int = HISTORY,
        wall: Callable[[], datetime] = clock.now,
        clock_s: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        """Initializes an empty cluster.

        Args:
            resources: The kinds to serve.
            history: Number of changes kept for watches; requests for older ones get 410.
            wall: The clock for timestamps in objects.
            clock_s: A monotonic clock, for the duration of watches.
        """
        self.faults = Faults()
        self._resources = resources
        self._wall = wall
        self._clock_s = clock_s
        self._storage = FakeStorage(history)
        self._streams: list[FakeStream] = []
        self._pages: OrderedDict[str, list[Object]] = OrderedDict()
        self._sequence = 0
        self._verbs: Mapping[str, Callable[[Request, Route], Object]] = {
            "GET": self._get,
            "POST": self._post,
            "PUT": self._put,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }

    # The interface `kube.api.Api`.

    def send(self, request: Request) -> bytes:
        """See `kube.api.Api`."""
        self.faults.before(request)
        with self._storage.condition:
            try:
                answer = kinds(request, self._resources) or self._verbs[request.method](
                    request, route(request, self._resources)
                )
            except errors.KubeError as error:
                error.request = request.line
                raise
        self.faults.after(request)
        return orjson.dumps(answer)

    @contextmanager
    def stream(self, request: Request) -> Iterator[FakeStream]:
        """See `kube.api.Api`."""
        self.faults.before(request)
        stream = self._open_stream(request)
        try:
            yield stream
        finally:
            stream.close()
            with self._storage.condition:
                self._streams.remove(stream)

    @property
    def version(self) -> int:
        """The resource version of the newest write."""
        return self._storage.version

    def stored(self, resource: Resource) -> list[Object]:
        """Returns every object of a kind without copying, which is faster than a list; do not change them."""
        with self._storage.condition:
            return self._storage.all(resource, None)

    def load(self, other: "FakeApi") -> None:
        """Copies the objects of another server without its history, so watches start with a list."""
        with self._storage.condition:
            self._storage.load(other._storage)  # noqa: SLF001 - of its own class
            self._sequence = other._sequence  # noqa: SLF001

    # Faults of watches, in addition to `faults`.

    @property
    def watches(self) -> int:
        """Number of open watches."""
        return len(self._streams)

    def disconnect(self) -> None:
        """Breaks every open watch; unread events are lost."""
        self._for_each_stream(FakeStream.disconnect)

    def end_watches(self) -> None:
        """Ends every open watch normally."""
        self._for_each_stream(FakeStream.end)

    def bookmark(self) -> None:
        """Sends a bookmark on every open watch."""
        self._for_each_stream(FakeStream.bookmark)

    def expire_watches(self) -> None:
        """Sends an ERROR event with 410 on every open watch."""
        self._for_each_stream(FakeStream.expire)

    def compact(self) -> None:
        """Drops the history and page tokens; later watches from an older version get 410."""
        self._for_each_stream(FakeStream.collect)
        with self._storage.condition:
            self._storage.compact()
            self._pages.clear()

    # Verbs. All run with the storage's lock held.

    def _get(self, request: Request, at: Route) -> Object:
        if at.name:
            return self._existing(at.key)
        query = dict(request.query)
        token = query.get("continue", "")
        if token:
            try:
                remaining = self._pages.pop(token)
            except KeyError:
                text = "the provided continue parameter is too old"
                raise errors.Gone(text, status=410, reason="Expired") from None
            version = token.split(":")[0]
        else:
            version = str(self._storage.version)
            fields, labels = query.get("fieldSelector", ""), query.get("labelSelector", "")
            check(fields)
            every = self._storage.all(at.resource, at.namespace)
            remaining = [obj for obj in every if selects(obj, fields, labels)]
        return self._page(at.resource, remaining, version, int(query.get("limit", 0)))

    def _post(self, request: Request, at: Route) -> Object:
        body = orjson.loads(request.body)
        if at.subresource == "eviction":
            return self._evict(at, body)
        metadata = dict(body.get("metadata") or {})
        self._sequence += 1
        if not metadata.get("name"):
            metadata["name"] = self._generated(metadata.get("generateName"))
        namespace = at.namespace or ""
        key = Key(at.resource, namespace, metadata["name"])
        if self._storage.get(key) is not None:
            text = f'{at.resource.plural} "{key.name}" already exists'
            raise errors.AlreadyExists(text, status=409, reason="AlreadyExists")
        uid = f"00000000-0000-4000-8000-{self._sequence:012x}"
        body = {**body, "metadata": metadata}
        prepared = objects.prepare_for_create(at.resource, body, namespace, uid, self._wall())
        if ("dryRun", "All") in request.query:
            return prepared
        return self._storage.put(key, prepared)

    def _put(self, request: Request, at: Route) -> Object:
        return self._update(at, self._existing(at.key), orjson.loads(request.body))

    def _patch(self, request: Request, at: Route) -> Object:
        old = self._existing(at.key)
        patch = orjson.loads(request.body)
        if request.content_type == JSON_PATCH:
            return self._update(at, old, patched(old, patch))
        if request.content_type == MERGE_PATCH:
            return self._update(at, old, merged(old, patch))
        text = f"the body of the request was in an unknown format: {request.content_type}"
        raise errors.KubeError(text, status=415, reason="UnsupportedMediaType")

    def _delete(self, request: Request, at: Route) -> Object:
        return self._remove(at.key, orjson.loads(request.body or b"{}"))

    # Parts of verbs.

    def _existing(self, key: Key) -> Object:
        obj = self._storage.get(key)
        if obj is None:
            text = f'{key.resource.plural} "{key.name}" not found'
            raise errors.NotFound(text, status=404, reason="NotFound")
        return obj

    def _page(
        self, resource: Resource, remaining: list[Object], version: str, limit: int
    ) -> Object:
        metadata: dict[str, Any] = {"resourceVersion": version}
        if limit and len(remaining) > limit:
            self._sequence += 1
            token = f"{version}:{self._sequence}"
            self._pages[token] = remaining[limit:]
            metadata |= {"continue": token, "remainingItemCount": len(remaining) - limit}
            remaining = remaining[:limit]
            if len(self._pages) > _TOKENS:
                self._pages.popitem(last=False)
        return {
            "apiVersion": resource.api_version,
            "kind": f"{resource.kind}List",
            "metadata": metadata,
            "items": [  # items of a list have no kind
                {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}
                for obj in remaining
            ],
        }

    def _generated(self, prefix: str | None) -> str:
        if not prefix:
            raise errors.Invalid("name or generateName is required", status=422, reason="Invalid")
        number, suffix = self._sequence * 7919, ""
        for _ in range(5):
            number, digit = divmod(number, len(_SUFFIX))
            suffix += _SUFFIX[digit]
        return prefix + suffix

    def _update(self, at: Route, old: Object, new: Object) -> Object:
        result = objects.prepare_for_update(at.resource, old, new, at.subresource)
        if result == old:
            return old  # as upstream, no new version and no event without a change
        stored = self._storage.put(at.key, result)
        metadata = stored["metadata"]
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            waits_for_kubelet = at.resource == PODS and metadata["deletionGracePeriodSeconds"] > 0
            if not waits_for_kubelet:
                return self._storage.remove(at.key)
        return stored

    def _remove(self, key: Key, options: Object) -> Object:
        obj = self._existing(key)
        objects.check_preconditions(key.resource, obj, options)
        period_s = objects.grace_s(obj, options) if key.resource == PODS else 0
        if not period_s and not obj["metadata"].get("finalizers"):
            return self._storage.remove(key)
        marked = objects.mark_deleting(obj, period_s, self._wall())
        return obj if marked == obj else self._storage.put(key, marked)

    def _evict(self, at: Route, body: Object) -> Object:
        pod = self._existing(at.key)
        options = body.get("deleteOptions") or {}
        objects.check_preconditions(PODS, pod, options)
        if not objects.ignores_budgets(pod):
            self._charge_budget(pod, at.namespace or "")
        self._storage.put(at.key, objects.mark_disrupted(pod, self._wall()))
        self._remove(at.key, {**options, "preconditions": {}})
        return {"apiVersion": "v1", "kind": "Status", "status": "Success", "code": 201}

    def _charge_budget(self, pod: Object, namespace: str) -> None:
        """Counts a disruption against the budget that covers `pod`, or refuses it."""
        budgets = [
            budget
            for budget in self._storage.all(PODDISRUPTIONBUDGETS, namespace)
            if matches(labels_of(pod), budget["spec"].get("selector"))
        ]
        if len(budgets) > 1:
            text = "This pod has more than one PodDisruptionBudget"
            raise errors.Unavailable(text, status=500, reason="InternalError")
        for budget in budgets:
            status = budget.get("status") or {}
            allowed = status.get("disruptionsAllowed", 0)
            if allowed < 1:
                text = "Cannot evict pod as it would violate the pod's disruption budget."
                raise errors.TooManyRequests(text, status=429, reason="TooManyRequests")
            key = Key(PODDISRUPTIONBUDGETS, namespace, budget["metadata"]["name"])
            self._storage.put(
                key, {**budget, "status": {**status, "disruptionsAllowed": allowed - 1}}
            )

    # Watches.

    def _open_stream(self, request: Request) -> FakeStream:
        query = dict(request.query)
        with self._storage.condition:
            at = route(request, self._resources)
            scope = WatchScope(
                at.resource,
                at.namespace,
                query.get("fieldSelector", ""),
                query.get("labelSelector", ""),
            )
            check(scope.fields)
            resource_version = query.get("resourceVersion", "")
            initial: list[Object] = []
            version = self._storage.version
            if resource_version in ("", "0"):
                initial = [
                    o for o in self._storage.all(at.resource, at.namespace) if scope.matches(o)
                ]
            elif resource_version.isdecimal():
                version = int(resource_version)
            else:
                text = f"resourceVersion: Invalid value: {resource_version!r}"
                raise errors.KubeError(text, status=400, reason="BadRequest", request=request.line)
            stream = FakeStream(
                self._storage,
                scope,
                version,
                initial=initial,
                timeout_s=float(query.get("timeoutSeconds", _WATCH_S)),
                clock_s=self._clock_s,
            )
            self._streams.append(stream)
            return stream

    def _for_each_stream(self, act: Callable[[FakeStream], object]) -> None:
        with self._storage.condition:
            for stream in self._streams:
                act(stream)
