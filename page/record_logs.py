"""The decision logs of all namespaces, from a watch: new records, and older ones in pages.

Segments stay compressed in memory, at a tenth of their size (decision 0059 limits their number). A segment is
parsed when it is new, or when a caller asks for records of the time that it covers.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kube import decode, record_log
from kube.api import Api
from kube.changes import Changes
from kube.reflector import Reflector
from kube.request import DECISIONLOGS
from page.record_query import LoggedRecord, RecordQuery, merge, merged
from policy.records import CLUSTER, Record, newest_of_jobs

FIRST_SEGMENTS = {CLUSTER: 20}
"""Namespace -> number of its newest segments that are read at the start."""
_FIRST_SEGMENTS = 2
"""Number of the newest segments of every other namespace that are read at the start."""
_MAX_READ = 300
"""Maximum number of segments read for one query, from the logs of the job's namespace and of the cluster."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A DecisionLog; see `kube.record_log`."""

    namespace: str
    name: str
    is_current: bool
    count: int
    first_s: float
    last_s: float
    fields: Mapping[str, Any] = field(repr=False)

    def records(self, containing: str = "") -> list[Record]:
        """Returns the segment's records; see `kube.record_log.decode`."""
        return record_log.decode(self.fields, containing)


class RecordLogs:
    """The logs of all namespaces. One thread calls `drain`; the other methods are thread-safe."""

    def __init__(self, api: Api, changes: Changes, clock_s: Callable[[], float]) -> None:
        """Initializes the record logs; start `reflector` to watch.

        Args:
            api: Sends the requests.
            changes: The lock and counter shared with other watches.
            clock_s: A monotonic clock.
        """
        self.reflector: Reflector[Segment] = Reflector(
            api, DECISIONLOGS, _segment, changes=changes, clock_s=clock_s
        )
        self._changes = changes
        self._queue: list[tuple[Segment | None, Segment | None]] = []
        self._lock = threading.Lock()
        self._history: dict[str, dict[str, Segment]] = {}
        """Namespace -> name -> segment of the history."""
        self._chunks: dict[str, dict[str, list[Record]]] = {}
        """Namespace -> name of a segment -> its current decisions."""
        self._current: dict[str, dict[str, Record]] = {}
        """Namespace -> job -> the newest decision about it."""
        self._is_first = True
        self.reflector.listen(lambda old, new: self._queue.append((old, new)))

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces that have a log."""
        with self._lock:
            return frozenset(self._history.keys() | self._chunks.keys())

    def current(self, job: str) -> Record | None:
        """Returns the newest decision about a job, from its namespace's log."""
        return self._current.get(job.partition("/")[0], {}).get(job)

    def of_cluster(self, code: str) -> Record | None:
        """Returns the newest current record about the whole cluster with this code."""
        chunks = self._chunks.get(CLUSTER, {}).values()
        records = [record for chunk in chunks for record in chunk if record.code == code]
        return max(records, key=lambda record: record.at_s, default=None)

    def drain(self) -> tuple[list[LoggedRecord], set[str]]:
        """Applies the changes from the watch.

        Returns:
            The new records, in order of time, and the jobs whose current decision has changed.
        """
        with self._changes.condition:
            queue, self._queue = self._queue, []
        if not queue:
            return [], set()
        changed: set[str] = set()
        new: list[LoggedRecord] = []
        with self._lock:
            for old, segment in queue:
                if (segment or old).is_current:  # type: ignore[union-attr] # `segment` and `old` are never both None
                    changed |= self._put_current(old, segment)
                elif self._put_history(old, segment) and segment is not None and not self._is_first:
                    records = segment.records()[old.count if old is not None else 0 :]
                    new += [LoggedRecord(segment.namespace, record) for record in records]
            if self._is_first:
                new = list(self._newest())
                self._is_first = False
        return sorted(new, key=lambda logged: logged.record.at_s), changed

    def _put_current(self, old: Segment | None, new: Segment | None) -> set[str]:
        """Applies a segment of current decisions; returns the jobs whose decision has changed."""
        namespace = (new or old).namespace  # type: ignore[union-attr] # `new` and `old` are never both None
        chunks = self._chunks.setdefault(namespace, {})
        if old is not None:
            chunks.pop(old.name, None)
        if new is not None:
            chunks[new.name] = new.records()
        if not chunks:
            del self._chunks[namespace]
        before = self._current.pop(namespace, {})
        after = newest_of_jobs(record for name in sorted(chunks) for record in chunks[name])
        if after:
            self._current[namespace] = after
        return {job for job in before.keys() | after.keys() if before.get(job) != after.get(job)}

    def _put_history(self, old: Segment | None, new: Segment | None) -> bool:
        namespace = (new or old).namespace  # type: ignore[union-attr] # `new` and `old` are never both None
        segments = self._history.setdefault(namespace, {})
        if old is not None:
            segments.pop(old.name, None)
        if new is not None:
            segments[new.name] = new
        if not segments:
            del self._history[namespace]
        return new is not None

    def _newest(self) -> Iterator[LoggedRecord]:
        """Yields the newest records of each namespace, to start with."""
        for namespace, segments in self._history.items():
            count = FIRST_SEGMENTS.get(namespace, _FIRST_SEGMENTS)
            for name in sorted(segments)[-count:]:
                for record in segments[name].records():
                    yield LoggedRecord(namespace, record)

    def history(
        self, query: RecordQuery, sees: Callable[[str], bool]
    ) -> tuple[list[LoggedRecord], bool]:
        """Returns the newest records that match a query, in order of time, and whether older ones match too.

        Args:
            query: The query.
            sees: Returns whether the caller may see a namespace's records.
        """
        namespaces = query.namespaces
        with self._lock:
            segments = [
                segment
                for namespace, by_name in self._history.items()
                if (namespaces is None or namespace in namespaces) and sees(namespace)
                for segment in by_name.values()
                if segment.first_s < query.before_s
            ]
        # Segments are read from the newest on, until the page is full and older segments cannot contain a record
        # that belongs on it. One record beyond the limit shows that there is another page.
        segments.sort(key=lambda segment: segment.last_s, reverse=True)
        entries: dict[tuple[float, str, str, str], LoggedRecord] = {}
        for segment in segments[:_MAX_READ]:
            if len(entries) > query.limit:
                oldest_s = sorted((logged.record.at_s for logged in entries.values()), reverse=True)
                if segment.last_s < oldest_s[query.limit] - 1.0:  # `last_s` is in whole seconds
                    return _last(entries, query.limit), True
            for record in segment.records(query.text):
                if query.selects(record):
                    merge(entries, LoggedRecord(segment.namespace, record))
        return _last(entries, query.limit), len(entries) > query.limit


def _last(entries: Mapping[Any, LoggedRecord], limit: int) -> list[LoggedRecord]:
    return merged(entries.values())[-limit:]


def _segment(obj: Mapping[str, Any]) -> Segment:
    metadata = obj["metadata"]
    labels = metadata.get("labels") or {}
    return Segment(
        metadata["namespace"],
        metadata["name"],
        labels.get(record_log.LABEL_LOG) == record_log.CURRENT,
        int(obj.get("count") or 0),
        decode.seconds(obj.get("first")),
        decode.seconds(obj.get("last")),
        {"version": obj.get("version"), "records": obj.get("records", "")},
    )
