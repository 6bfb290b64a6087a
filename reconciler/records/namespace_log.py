"""The decision log of one namespace as objects on the API server: decides what to write and delete. Pure.

The history is a series of segments. The newest one is rewritten until it is full, and the oldest ones are
deleted. The newest decision about each job is kept in separate objects, so that the reason of a job that
has waited for days is known no matter how much has happened since.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kube import decode, record_log
from policy.records import Record

SEGMENT_BYTES = 48_000
"""Uncompressed size of one segment; about a tenth of it is stored."""
MAX_SEGMENTS = 120
"""Maximum number of segments per namespace, about 20 000 records."""
_MAX_UNWRITTEN = 20
"""Maximum number of full segments that wait to be written; beyond it, newer records are dropped."""
_CHUNK = 500
"""Number of jobs in one object of current decisions."""
_MAX_CHUNKS = 20
"""Maximum number of objects of current decisions that are read. More of them, written by others, could exhaust
the memory."""
_CURRENT_EVERY_S = 5.0
"""Interval between two writes of the current decisions."""
_FIGURES_EVERY_S = 60.0
"""Interval between two writes of the current decisions if only figures have changed."""


@dataclass(frozen=True, slots=True)
class Write:
    """An object to create or to replace."""

    name: str
    fields: Mapping[str, Any]
    log: str
    """CURRENT or HISTORY of `kube.record_log`."""
    lines: int
    """Number of lines in the object."""
    is_last: bool = True
    """Whether this is the last object of the current decisions."""


@dataclass(slots=True)
class _Segment:
    """A segment that is not full or not fully written yet."""

    name: str
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    written: int = 0
    """Number of lines that are stored on the API server."""

    def add(self, record: Record, line: bytes) -> None:
        self.first_s = self.first_s or record.at_s
        self.last_s = record.at_s
        self.lines.append(line)
        self.size += len(line)


class NamespaceLog:
    """The records of one namespace. Used on one thread."""

    def __init__(self, prefix: str, stored: Mapping[str, Mapping[str, Any]]) -> None:
        """Continues the stored log.

        Args:
            prefix: Prefix of new segments' names; sorts after the prefixes of earlier writers.
            stored: Name -> DecisionLog of the namespace.
        """
        self._prefix = prefix
        self._count = 0
        self._stored: deque[tuple[str, float]] = deque()
        """(name, time of the newest record) of segments that are complete."""
        self._open: deque[_Segment] = deque()
        self._doomed: dict[str, None] = {}
        """Names of objects to delete, in order; a dict used as an ordered set."""
        self.current: dict[str, Record] = {}
        """Job key (or the record's subject, if the record has no job) -> the newest decision about it."""
        self._chunks = 0
        """Number of existing objects of current decisions."""
        self._current_due_s = float("inf")
        """Time of the next write of the current decisions; infinite if nothing has changed."""
        self._current_written_s = 0.0
        self.dropped = 0
        """Records dropped because too many were waiting to be written."""
        self._restore(stored)

    def _restore(self, stored: Mapping[str, Mapping[str, Any]]) -> None:
        history = {}
        for name, segment in sorted(stored.items()):
            if name in _CHUNK_NAMES:
                self._chunks = max(self._chunks, _CHUNK_NAMES[name] + 1)
                for record in record_log.decode(segment)[:_CHUNK]:
                    self.current[_key(record)] = record
            elif _log_of(segment) == record_log.HISTORY:
                history[name] = segment
                self._stored.append((name, decode.seconds(segment.get("last"))))
        if history:
            self._continue(history[max(history)])

    def _continue(self, newest: Mapping[str, Any]) -> None:
        """Appends to the newest segment if it is less than half full, because leaders may change often."""
        segment = _Segment(self._stored[-1][0])
        for record in record_log.decode(newest):
            segment.add(record, record_log.line(record))
        if segment.lines and segment.size < SEGMENT_BYTES // 2:
            segment.written = len(segment.lines)
            self._stored.pop()
            self._open.append(segment)

    def add(self, record: Record) -> None:
        """Adds a record to the history."""
        if not self._open or self._open[-1].size >= SEGMENT_BYTES:
            if len(self._open) > _MAX_UNWRITTEN:
                self.dropped += 1
                return
            self._count += 1
            self._open.append(_Segment(f"{self._prefix}-{self._count:05}"))
        self._open[-1].add(record, record_log.line(record))

    def set_current(self, record: Record, now_s: float) -> None:
        """Sets the newest decision about a job, and adds it to the history unless only figures differ."""
        key = _key(record)
        last = self.current.get(key)
        every_s = _FIGURES_EVERY_S
        if last is None or not _continues(last, record):
            every_s = _CURRENT_EVERY_S
            self.add(record)
        elif last.figures == record.figures:
            return
        else:
            record = replace(record, since_s=last.since_s)
        self.current[key] = record
        due_s = max(now_s, self._current_written_s + every_s)
        self._current_due_s = min(self._current_due_s, due_s)

    def forget(self, job: str, now_s: float) -> None:
        """Drops the current decision about a deleted job."""
        if self.current.pop(job, None) is not None:
            due_s = max(now_s, self._current_written_s + _CURRENT_EVERY_S)
            self._current_due_s = min(self._current_due_s, due_s)

    def writes(self, now_s: float) -> list[Write]:
        """Returns the objects to write now; call `written` for each that was stored."""
        writes = [
            Write(
                segment.name,
                record_log.encode(segment.lines, segment.first_s, segment.last_s),
                record_log.HISTORY,
                len(segment.lines),
            )
            for segment in self._open
            if segment.written < len(segment.lines)
        ]
        if now_s >= self._current_due_s:
            writes += self._current_writes()
        return writes

    def _current_writes(self) -> list[Write]:
        records = [self.current[key] for key in sorted(self.current)]
        chunks = [records[start : start + _CHUNK] for start in range(0, len(records), _CHUNK)]
        self._doom(_chunk_name(index) for index in range(len(chunks), self._chunks))
        return [
            Write(
                _chunk_name(index),
                record_log.encode(
                    [record_log.line(record) for record in chunk],
                    min(record.at_s for record in chunk),
                    max(record.at_s for record in chunk),
                ),
                record_log.CURRENT,
                len(chunk),
                is_last=chunk is chunks[-1],
            )
            for index, chunk in enumerate(chunks)
        ]

    def written(self, write: Write, now_s: float) -> int:
        """Records that an object was stored; returns the number of newly stored records."""
        if write.log == record_log.CURRENT:
            if write.is_last:
                self._current_due_s, self._current_written_s = float("inf"), now_s
            self._chunks = max(self._chunks, _chunk_index(write.name) + 1)
            return 0
        segment = next(segment for segment in self._open if segment.name == write.name)
        new = write.lines - segment.written
        segment.written = write.lines
        while self._open and self._is_closed(self._open[0]):
            self._close_oldest()
        return new

    def _close_oldest(self) -> None:
        segment = self._open.popleft()
        self._stored.append((segment.name, segment.last_s))

    @staticmethod
    def _is_closed(segment: _Segment) -> bool:
        return segment.size >= SEGMENT_BYTES and segment.written == len(segment.lines)

    @staticmethod
    def _has_aged(segment: _Segment, oldest_s: float) -> bool:
        """Returns whether a segment is old enough to be deleted, even if it is not full."""
        return segment.last_s < oldest_s and segment.written == len(segment.lines)

    def deletions(self, oldest_s: float) -> list[str]:
        """Returns the names of objects to delete; call `deleted` for each that was deleted.

        Args:
            oldest_s: Records before this time are not kept.
        """
        while self._open and self._has_aged(self._open[0], oldest_s):
            self._close_oldest()
        while self._stored and (len(self._stored) > MAX_SEGMENTS or self._stored[0][1] < oldest_s):
            self.give_up_oldest()
        if not self.current and self._chunks:
            self._doom(_chunk_name(index) for index in range(self._chunks))
        return list(self._doomed)

    def deleted(self, name: str) -> None:
        """Records that an object was deleted."""
        self._doomed.pop(name, None)
        index = _chunk_index(name)
        if index >= 0:
            self._chunks = min(self._chunks, index)

    @property
    def oldest_s(self) -> float:
        """Time of the oldest segment that can be given up; infinite if there is none."""
        return self._stored[0][1] if self._stored else float("inf")

    @property
    def unwritten(self) -> int:
        """Number of records that are not stored on the API server yet."""
        return sum(len(segment.lines) - segment.written for segment in self._open)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored, and nothing is left to write or delete."""
        return not (self._open or self._stored or self._doomed or self.current or self._chunks)

    @property
    def segments(self) -> int:
        """Number of stored segments of the history."""
        return len(self._stored)

    def give_up_oldest(self) -> None:
        """Marks the oldest segment for deletion."""
        self._doom([self._stored.popleft()[0]])

    def _doom(self, names: Iterable[str]) -> None:
        self._doomed.update(dict.fromkeys(names))


_CHUNK_PREFIX = "edl-current-"


def _chunk_name(index: int) -> str:
    return f"{_CHUNK_PREFIX}{index}"


_CHUNK_NAMES = {_chunk_name(index): index for index in range(_MAX_CHUNKS)}


def _chunk_index(name: str) -> int:
    """Returns the index in the name of an object of current decisions, or -1 for other names."""
    digits = name.removeprefix(_CHUNK_PREFIX)
    return int(digits) if name.startswith(_CHUNK_PREFIX) and digits.isdecimal() else -1


def _log_of(stored: Mapping[str, Any]) -> str:
    labels = stored.get("metadata", {}).get("labels") or {}
    return str(labels.get(record_log.LABEL_LOG, record_log.HISTORY))


def _key(record: Record) -> str:
    return record.job or record.about


def _continues(last: Record, record: Record) -> bool:
    """Returns whether a decision differs from the previous one only in figures."""
    return (last.code, last.figures.get("target")) == (record.code, record.figures.get("target"))
