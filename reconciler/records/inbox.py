"""Where the control loop leaves what is to be recorded: bounded, and at no cost for a tick. Thread-safe.

Decisions are put into words on the thread that takes them out (`reconciler.records.writer`).
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
    """One thing to take in, for one namespace; a decision is None where a job is gone."""

    namespace: str
    job: str
    record: Record | None
    is_current: bool = False
    """Whether it is the newest decision about the job itself."""


class RecordInbox:
    """A bounded queue of decisions and records."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        """Starts empty; what comes while `max_waiting` entries wait is dropped and counted."""
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._queue: deque[tuple[str, str, Decision | Record | None, bool]] = deque()
        self._newest: dict[str, Decision] = {}
        """Job key -> the newest decision about it, where only figures differ from the last in the queue."""
        self._last: dict[str, tuple[Any, Any]] = {}
        """Job key -> code and target of the last decision in the queue."""
        self.dropped = 0
        """Entries that found the queue full."""
        self.jobs: frozenset[str] | None = frozenset()
        """The jobs of the newest plan, where the writer has asked for them with None."""
        self.restored: Record | None = None
        """How the reclaim objective stood with an earlier leader, where nobody has taken that in yet."""

    def put_decision(self, job: str, decision: Decision) -> None:
        """Puts what has been decided once: a release, a refusal, an avoided node."""
        self._put(job, decision, is_current=False)

    def put_current(self, job: str, decision: Decision) -> None:
        """Puts the newest decision about a job; of those that differ in figures alone the last counts."""
        state = decision.code, decision.figures.get("target")
        with self._lock:
            if self._last.get(job) == state:
                self._newest[job] = decision
                return
            self._last[job] = state
            self._newest.pop(job, None)
        self._put(job, decision, is_current=True)

    def put(self, namespace: str, record: Record, *, is_current: bool = False) -> None:
        """Puts a record of a namespace."""
        self._append((namespace, record.job, record, is_current))

    def put_gone(self, job: str) -> None:
        """Puts that a job is deleted."""
        with self._lock:
            self._last.pop(job, None)
            self._newest.pop(job, None)
        self._put(job, None, is_current=True)

    def _put(self, job: str, decision: Decision | None, *, is_current: bool) -> None:
        self._append((job.partition("/")[0], job, decision, is_current))

    def _append(self, item: tuple[str, str, Decision | Record | None, bool]) -> None:
        with self._lock:
            if len(self._queue) >= self._max_waiting:
                self.dropped += 1
                return
            self._queue.append(item)

    def restart(self) -> None:
        """Lets every job's next decision be put in whole: another process has led meanwhile."""
        with self._lock:
            self._queue.clear()
            self._last.clear()
            self._newest.clear()

    def drain(self) -> list[Entry]:
        """Takes out what is there, in order; names of other namespaces stand in those of the cluster alone."""
        with self._lock:
            items = list(self._queue)
            self._queue.clear()
            items += [(job.partition("/")[0], job, d, True) for job, d in self._newest.items()]
            self._newest.clear()
        return [entry for item in items for entry in _entries(*item)]


def _entries(
    namespace: str, job: str, content: Decision | Record | None, is_current: bool
) -> list[Entry]:
    if isinstance(content, Record):
        return [Entry(namespace, job, content, is_current)]
    if content is None:
        return [Entry(place, job, None, is_current) for place in (namespace, CLUSTER)]
    masked = records.for_namespace(content, namespace)
    entries = [Entry(namespace, job, records.of_decision(masked, job, masked.at_s), is_current)]
    if masked is not content:
        whole = records.of_decision(content, job, content.at_s)
        entries.append(Entry(CLUSTER, job, whole, is_current))
    return entries
