"""Records of one kind by uid, with the listeners that want to know of every change.

Who calls: `kube.reflector` writes, everybody reads. All of it is guarded by the lock of the
`Changes` it was made with.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from kube.changes import Changes

T = TypeVar("T")

log = logging.getLogger(__name__)


class Records(Generic[T]):
    """uid -> record. A write takes effect for readers and listeners as one step."""

    def __init__(self, name: str, changes: Changes) -> None:
        """An empty set; `name` is for logs."""
        self.listener_errors = 0
        self._name = name
        self._changes = changes
        self._records: dict[str, T] = {}
        self._tuple: tuple[T, ...] | None = ()
        self._listeners: list[Callable[[T | None, T | None], None]] = []

    def all(self) -> tuple[T, ...]:
        """All records, in no order; the same tuple until something changes."""
        with self._changes.condition:
            if self._tuple is None:
                self._tuple = tuple(self._records.values())
            return self._tuple

    def get(self, uid: str) -> T | None:
        """The record of one object."""
        return self._records.get(uid)

    def listen(self, listener: Callable[[T | None, T | None], None]) -> None:
        """See `Reflector.listen`."""
        with self._changes.condition:
            self._listeners.append(listener)
            for record in self._records.values():
                self._tell(listener, None, record)

    def put(self, uid: str, record: T | None) -> None:
        """Enters one change; None is a deletion. An equal record is no change."""
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
                self._tell(listener, old, record)
            self._changes.bump()

    def swap(self, found: Mapping[str, T]) -> None:
        """Takes `found` as the whole truth: deletions first, so that names are free again."""
        with self._changes.condition:
            for uid in [uid for uid in self._records if uid not in found]:
                self.put(uid, None)
            for uid, record in found.items():
                self.put(uid, record)

    def _tell(
        self, listener: Callable[[T | None, T | None], None], old: T | None, new: T | None
    ) -> None:
        try:
            listener(old, new)
        except Exception:  # one listener's bug must not cut the others off
            self.listener_errors += 1
            log.exception("listener failed", extra={"records": self._name})
