"""The fake server's storage: objects, one version counter, and the history that watches read."""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kube import errors
from kube.request import Resource

Object = Mapping[str, Any]
"""Immutable once stored: a write stores a new object."""
HISTORY = 50_000


@dataclass(frozen=True, slots=True)
class Key:
    """The key of an object; `namespace` is "" for cluster-scoped kinds."""

    resource: Resource
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class StorageEvent:
    """One write in the history: `old` is None for a creation, `new` is None for a deletion."""

    version: int
    key: Key
    old: Object | None
    new: Object | None


class FakeStorage:
    """A key-value store of objects with a history. `condition` guards it and wakes watches."""

    def __init__(self, history: int = HISTORY) -> None:
        """Creates an empty store that keeps the last `history` writes."""
        self.condition = threading.Condition()
        self.version = 1
        self.oldest = 0
        """Oldest version from which a watch may start."""
        self.history: deque[StorageEvent] = deque(maxlen=history)
        self._objects: dict[Key, Object] = {}

    def get(self, key: Key) -> Object | None:
        """Returns the object, or None."""
        return self._objects.get(key)

    def all(self, resource: Resource, namespace: str | None) -> list[Object]:
        """Returns the objects of one kind in the API's order; None for all namespaces."""
        entries = [
            (key.namespace, key.name, obj)
            for key, obj in self._objects.items()
            if key.resource == resource and namespace in (None, key.namespace)
        ]
        return [obj for _, _, obj in sorted(entries, key=lambda entry: entry[:2])]

    def put(self, key: Key, obj: Object) -> Object:
        """Stores `obj` under the next version; returns the stored object."""
        with self.condition:
            stored = self._stamped(obj)
            old = self._objects.get(key)
            self._objects[key] = stored
            self._record(key, old, stored)
            return stored

    def remove(self, key: Key) -> Object:
        """Removes an object; returns its last state, with the version of the removal."""
        with self.condition:
            removed = self._stamped(self._objects.pop(key))
            self._record(key, removed, None)
            return removed

    def since(self, version: int) -> list[StorageEvent]:
        """Returns the writes after `version`, oldest first.

        Raises:
            Gone: The history no longer contains them.
        """
        if version < self.oldest:
            message = f"too old resource version: {version} ({self.oldest})"
            raise errors.Gone(message, status=410, reason="Expired")
        events = []
        for event in reversed(self.history):
            if event.version <= version:
                break
            events.append(event)
        return events[::-1]

    def load(self, other: "FakeStorage") -> None:
        """Replaces all objects by those of another store, and drops the history."""
        with self.condition:
            self._objects = dict(other._objects)  # noqa: SLF001 - of its own class
            self.version = other.version
            self.compact()

    def compact(self) -> None:
        """Drops the history."""
        with self.condition:
            self.oldest = self.version
            self.history.clear()

    def _stamped(self, obj: Object) -> Object:
        self.version += 1
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}

    def _record(self, key: Key, old: Object | None, new: Object | None) -> None:
        if len(self.history) == self.history.maxlen:
            self.oldest = self.history[0].version
        self.history.append(StorageEvent(self.version, key, old, new))
        self.condition.notify_all()
