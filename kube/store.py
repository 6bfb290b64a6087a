"""The object store of a reflector: records of one kind by uid, with listeners.

Only `kube.reflector` writes to it. The lock of the `Changes` given at construction guards everything.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from kube.changes import Changes

T = TypeVar("T")

log = logging.getLogger(__name__)


class Store(Generic[T]):
    """A thread-safe map from uid to record; a write is atomic for readers and listeners."""

    def __init__(self, name: str, changes: Changes) -> None:
        """Creates an empty store; `name` appears in logs."""
        self.listener_errors = 0
        self._name = name
        self._changes = changes
        self._records: dict[str, T] = {}
        self._tuple: tuple[T, ...] | None = ()
        self._listeners: list[Callable[[T | None, T | None], None]] = []

    def all(self) -> tuple[T, ...]:
        """Returns all records, unordered; calls return the same tuple until a record changes."""
        with self._changes.condition:
            if self._tuple is None:
                self._tuple = tuple(self._records.values())
            return self._tuple

    def listen(self, listener: Callable[[T | None, T | None], None]) -> None:
        """See `Reflector.listen`."""
        with self._changes.condition:
            self._listeners.append(listener)
            for record in self._records.values():
                self._notify(listener, None, record)

    def put(self, uid: str, record: T | None) -> None:
        """Stores one record; None deletes it. An equal record does not count as a change."""
        with self._changes.condition:
            old = self._records.get(uid)
            if old == record:
                return
            if record is None:
                del self._records[uid]
            else:
                self._records[uid] = record
            self._tuple = None
            for listener in self._listeners:
                self._notify(listener, old, record)
            self._changes.bump()

    def replace(self, records: Mapping[str, T]) -> None:
        """Replaces all records, deletions first so that names become free again."""
        with self._changes.condition:
            for uid in [uid for uid in self._records if uid not in records]:
                self.put(uid, None)
            for uid, record in records.items():
                self.put(uid, record)

    def _notify(
        self, listener: Callable[[T | None, T | None], None], old: T | None, new: T | None
    ) -> None:
        try:
            listener(old, new)
        except Exception:  # a bug in one listener must not affect the others
            self.listener_errors += 1
            log.exception("listener failed", extra={"records": self._name})
