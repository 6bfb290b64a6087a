"""Watches of the fake server: the store's history, seen through selectors."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kube import errors
from kube.fake.selectors import selects
from kube.fake.store import Change, Object, Store
from kube.request import Resource


@dataclass(frozen=True, slots=True)
class Scope:
    """What a list or a watch covers."""

    resource: Resource
    namespace: str | None
    fields: str = ""
    labels: str = ""

    def has(self, obj: Object | None) -> bool:
        """Whether an object is within; None never is."""
        return obj is not None and selects(obj, self.fields, self.labels)

    def covers(self, change: Change) -> bool:
        """Whether a change is of this kind and namespace."""
        return change.key.resource == self.resource and (
            self.namespace is None or change.key.namespace == self.namespace
        )


class FakeStream:
    """One watch; blocks until there is an event, the end, or a fault."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        version: int,
        *,
        initial: list[Object],
        timeout_s: float,
        clock_s: Callable[[], float],
    ) -> None:
        """Follows `scope` from `version`, after `initial` objects as ADDED."""
        self._store = store
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
        with self._store.condition:
            while not self._lines:
                if self._broken is not None:
                    raise self._broken
                if self._closed:
                    raise StopIteration
                if not self.collect():
                    left_s = self._ends_s - self._clock_s()
                    if left_s <= 0:
                        raise StopIteration
                    self._store.condition.wait(left_s)
            return self._lines.popleft()

    def close(self) -> None:
        """See `kube.client.Stream`; what was not read is lost."""
        with self._store.condition:
            self._closed = True
            self._lines.clear()
            self._store.condition.notify_all()

    def disconnect(self) -> None:
        """Breaks the connection; what was not read is lost."""
        with self._store.condition:
            self._lines.clear()
            self._broken = errors.Unavailable("the connection broke")
            self._store.condition.notify_all()

    def end(self) -> None:
        """Ends it the way a server does after the time asked for, once all is read."""
        with self._store.condition:
            self.collect()
            self._closed = True
            self._store.condition.notify_all()

    def expire(self) -> None:
        """Sends an ERROR event of 410 and ends."""
        with self._store.condition:
            self.collect()
            self._lines.append(_expired("too old resource version"))
            self._closed = True
            self._store.condition.notify_all()

    def bookmark(self) -> None:
        """Tells how far the history goes."""
        with self._store.condition:
            self.collect()
            resource = self._scope.resource
            mark = {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {"resourceVersion": str(self._store.version)},
            }
            self._lines.append(_line("BOOKMARK", mark))
            self._store.condition.notify_all()

    def collect(self) -> bool:
        """Takes over what happened since; True if there is something to read."""
        try:
            changes = self._store.since(self._version)
        except errors.Gone as gone:
            self._lines.append(_expired(gone.message))
            self._closed = True
            return True
        for change in changes:
            if self._scope.covers(change):
                self._lines.extend(self._event(change))
        self._version = self._store.version
        return bool(self._lines)

    def _event(self, change: Change) -> Iterator[bytes]:
        """A change as this watch sees it: leaving the selector is a deletion, too."""
        was, now = self._scope.has(change.old), self._scope.has(change.new)
        if now and change.new is not None:
            yield _line("MODIFIED" if was else "ADDED", change.new)
        elif was and change.old is not None:
            metadata = {**change.old["metadata"], "resourceVersion": str(change.version)}
            yield _line("DELETED", {**change.old, "metadata": metadata})


def _line(kind: str, obj: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"type": kind, "object": obj})


def _expired(message: str) -> bytes:
    status = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}
    return _line("ERROR", {**status, "message": message})
