"""A bounded, thread-safe queue from the control loop to the writer of the decision log.

Putting a record costs a tick almost nothing: decisions are turned into text only by the thread that empties
the queue (`reconciler.records.writer`).
"""

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from policy import records
from policy.decisions import Decision
from policy.records import CLUSTER, Record

MAX_WAITING = 20_000


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry for the log of one namespace; `record` is None if the job was deleted."""

    namespace: str
    job: str
    record: Record | None
    is_current: bool = False
    """Whether this is the newest decision about the job itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """A queued decision or record; `content` is None if the job was deleted."""

    namespace: str
    job: str
    content: Decision | Record | None
    is_current: bool


class RecordInbox:
    """A bounded queue of decisions and records."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        """Initializes an empty inbox; entries beyond `max_waiting` are dropped and counted."""
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._queue: deque[_Item] = deque()
        self._newest: dict[str, Decision] = {}
        """Job key -> newest decision about it, if only its figures differ from the last one in the queue."""
        self._last: dict[str, tuple[Any, Any]] = {}
        """Job key -> code and target of the last decision put into the queue."""
        self.dropped = 0
        """Entries dropped because the queue was full."""
        self.jobs: frozenset[str] | None = frozenset()
        """The jobs of the newest plan; the writer requests an update by setting this to None."""
        self.restored: Record | None = None
        """The previous leader's standing of the reclaim objective, until the observer has read it."""

    def put_decision(self, job: str, decision: Decision) -> None:
        """Puts a one-time decision: a release, a refusal or an avoided node."""
        self._put(job, decision, is_current=False)

    def put_current(self, job: str, decision: Decision) -> None:
        """Puts the newest decision about a job; it replaces a waiting one that differs only in figures."""
        state = decision.code, decision.figures.get("target")
        with self._lock:
            if self._last.get(job) == state:
                self._newest[job] = decision
                return
            self._last[job] = state
            self._newest.pop(job, None)
        self._put(job, decision, is_current=True)

    def put(self, namespace: str, record: Record, *, is_current: bool = False) -> None:
        """Puts a record for a namespace."""
        self._append(
            _Item(namespace=namespace, job=record.job, content=record, is_current=is_current)
        )

    def put_gone(self, job: str) -> None:
        """Puts the deletion of a job."""
        with self._lock:
            self._last.pop(job, None)
            self._newest.pop(job, None)
        self._put(job, None, is_current=True)

    def _put(self, job: str, decision: Decision | None, *, is_current: bool) -> None:
        self._append(_item(job, decision, is_current=is_current))

    def _append(self, item: _Item) -> None:
        with self._lock:
            if len(self._queue) >= self._max_waiting:
                self.dropped += 1
                return
            self._queue.append(item)

    def restart(self) -> None:
        """Clears the inbox after another process has led, so that each job's next decision is queued."""
        with self._lock:
            self._queue.clear()
            self._last.clear()
            self._newest.clear()

    def drain(self) -> list[Entry]:
        """Removes and returns all entries, in order.

        Only entries for the cluster's log contain names of other namespaces.
        """
        with self._lock:
            items = list(self._queue)
            self._queue.clear()
            items += [
                _item(job, decision, is_current=True) for job, decision in self._newest.items()
            ]
            self._newest.clear()
        return [entry for item in items for entry in _entries(item)]


def _item(job: str, decision: Decision | None, *, is_current: bool) -> _Item:
    namespace = job.partition("/")[0]
    return _Item(namespace=namespace, job=job, content=decision, is_current=is_current)


def _entries(item: _Item) -> list[Entry]:
    """Returns the entry for the namespace, and one for the cluster's log if that may show more details."""
    namespace, job, content = item.namespace, item.job, item.content
    if isinstance(content, Record):
        return [Entry(namespace, job, content, item.is_current)]
    if content is None:
        return [Entry(log, job, None, item.is_current) for log in (namespace, CLUSTER)]
    masked = records.for_namespace(content, namespace)
    masked_record = records.of_decision(masked, job, masked.at_s)
    entries = [Entry(namespace, job, masked_record, item.is_current)]
    if masked is not content:
        whole = records.of_decision(content, job, content.at_s)
        entries.append(Entry(CLUSTER, job, whole, item.is_current))
    return entries
