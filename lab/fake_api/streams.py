"""Watches of the fake server: the storage's history, filtered by selectors."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kube import errors
from kube.request import Resource
from lab.fake_api.selectors import selects
from lab.fake_api.storage import FakeStorage, Object, StorageEvent


@dataclass(frozen=True, slots=True)
class WatchScope:
    """The resource, namespace and selectors of a watch."""

    resource: Resource
    namespace: str | None
    fields: str = ""
    labels: str = ""

    def matches(self, obj: Object | None) -> bool:
        """Returns whether an object matches the selectors; None never does."""
        return obj is not None and selects(obj, self.fields, self.labels)

    def covers(self, event: StorageEvent) -> bool:
        """Returns whether a write is of this kind and namespace."""
        return event.key.resource == self.resource and (
            self.namespace is None or event.key.namespace == self.namespace
        )


class FakeStream:
    """One watch; iteration blocks until there is an event, the end or a fault."""

    def __init__(
        self,
        storage: FakeStorage,
        scope: WatchScope,
        version: int,
        *,
        initial: list[Object],
        timeout_s: float,
        clock_s: Callable[[], float],
    ) -> None:
        """Watches `scope` from `version`; sends the `initial` objects first, as ADDED."""
        self._storage = storage
        self._scope = scope
        self._version = version
        self._lines = deque(_line("ADDED", obj) for obj in initial)
        self._clock_s = clock_s
        self._ends_s = clock_s() + timeout_s
        self._broken: errors.KubeError | None = None
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        with self._storage.condition:
            while not self._lines:
                if self._broken is not None:
                    raise self._broken
                if self._closed:
                    raise StopIteration
                if not self.collect():
                    remaining_s = self._ends_s - self._clock_s()
                    if remaining_s <= 0:
                        raise StopIteration
                    self._storage.condition.wait(remaining_s)
            return self._lines.popleft()

    def close(self) -> None:
        """See `kube.api.Stream`; unread events are lost."""
        with self._storage.condition:
            self._closed = True
            self._lines.clear()
            self._storage.condition.notify_all()

    def disconnect(self) -> None:
        """Breaks the connection; unread events are lost."""
        with self._storage.condition:
            self._lines.clear()
            self._broken = errors.Unavailable("the connection broke")
            self._storage.condition.notify_all()

    def end(self) -> None:
        """Ends the watch after its unread events, as a server does after the requested time."""
        with self._storage.condition:
            self.collect()
            self._closed = True
            self._storage.condition.notify_all()

    def expire(self) -> None:
        """Sends an ERROR event with 410 and ends the watch."""
        with self._storage.condition:
            self.collect()
            self._lines.append(_expired("too old resource version"))
            self._closed = True
            self._storage.condition.notify_all()

    def bookmark(self) -> None:
        """Sends a bookmark with the newest version."""
        with self._storage.condition:
            self.collect()
            resource = self._scope.resource
            mark = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {"resourceVersion": str(self._storage.version)},
            }
            self._lines.append(_line("BOOKMARK", mark))
            self._storage.condition.notify_all()

    def collect(self) -> bool:
        """Queues the events since the last call; returns whether there is something to read."""
        try:
            events = self._storage.since(self._version)
        except errors.Gone as error:
            self._lines.append(_expired(error.message))
            self._closed = True
            return True
        for event in events:
            if self._scope.covers(event):
                self._lines.extend(self._watch_lines(event))
        self._version = self._storage.version
        return bool(self._lines)

    def _watch_lines(self, event: StorageEvent) -> Iterator[bytes]:
        """Converts a write to events: an object that no longer matches counts as deleted."""
        was, now = self._scope.matches(event.old), self._scope.matches(event.new)
        if now and event.new is not None:
            yield _line("MODIFIED" if was else "ADDED", event.new)
        elif was and event.old is not None:
            metadata = {**event.old["metadata"], "resourceVersion": str(event.version)}
            yield _line("DELETED", {**event.old, "metadata": metadata})


def _line(kind: str, obj: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"type": kind, "object": obj})


def _expired(message: str) -> bytes:
    status = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}
    return _line("ERROR", {**status, "message": message})
