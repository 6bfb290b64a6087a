"""The fake server's memory: objects, one counter of versions, and the history that watches read."""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kube import errors
from kube.request import Resource

Object = Mapping[str, Any]
"""Never changed once stored: a write stores another one."""
HISTORY = 50_000


@dataclass(frozen=True, slots=True)
class Key:
    """Where an object is; `namespace` is "" for kinds without."""

    resource: Resource
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Change:
    """One write: `old` is None for a creation, `new` for a deletion."""

    version: int
    key: Key
    old: Object | None
    new: Object | None


class Store:
    """Objects by key. `condition` guards everything and wakes watches."""

    def __init__(self, history: int = HISTORY) -> None:
        """Empty; remembers the last `history` changes."""
        self.condition = threading.Condition()
        self.version = 1
        self.oldest = 0
        """Watches from before this version are refused."""
        self.history: deque[Change] = deque(maxlen=history)
        self._objects: dict[Key, Object] = {}

    def get(self, key: Key) -> Object | None:
        """The object, or None."""
        return self._objects.get(key)

    def all(self, resource: Resource, namespace: str | None) -> list[Object]:
        """Objects of one kind in the API's order; None for all namespaces."""
        found = [
            (key.namespace, key.name, obj)
            for key, obj in self._objects.items()
            if key.resource == resource and namespace in (None, key.namespace)
        ]
        return [obj for _, _, obj in sorted(found, key=lambda entry: entry[:2])]

    def put(self, key: Key, obj: Object) -> Object:
        """Stores `obj` under the next version; returns it as stored."""
        with self.condition:
            stored = self._stamped(obj)
            old = self._objects.get(key)
            self._objects[key] = stored
            self._record(key, old, stored)
            return stored

    def remove(self, key: Key) -> Object:
        """Removes an object; returns it as it was, under the version of its removal."""
        with self.condition:
            gone = self._stamped(self._objects.pop(key))
            self._record(key, gone, None)
            return gone

    def since(self, version: int) -> list[Change]:
        """Changes after `version`, oldest first.

        Raises:
            Gone: they are not known any more.
        """
        if version < self.oldest:
            message = f"too old resource version: {version} ({self.oldest})"
            raise errors.Gone(message, status=410, reason="Expired")
        changes = []
        for change in reversed(self.history):
            if change.version <= version:
                break
            changes.append(change)
        return changes[::-1]

    def compact(self) -> None:
        """Forgets the history up to now."""
        with self.condition:
            self.oldest = self.version
            self.history.clear()

    def _stamped(self, obj: Object) -> Object:
        self.version += 1
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}

    def _record(self, key: Key, old: Object | None, new: Object | None) -> None:
        if len(self.history) == self.history.maxlen:
            self.oldest = self.history[0].version
        self.history.append(Change(self.version, key, old, new))
        self.condition.notify_all()
