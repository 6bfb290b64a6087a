"""The lease table: the tasks this trainer has leased, their progress, and what to report of them.

Pure but for its lock. A task is acknowledged only after all its records were trained: reading a
record is not training it.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from edl.master import protocol
from edl.master.counts import Counts
from edl.master.held_lease import HeldLease
from edl.master.protocol import Lease

_ACCEPTED = "accepted"
_MAX_NOT_YET_DURABLE = 16_384
"""Acknowledgements kept for a master that takes over: more than a second's worth of any trainer."""


_MAX_ERROR_CHARS = 500
"""Length to which the text of a failure is cut before it is reported."""


@dataclass(frozen=True)
class Portion:
    """Records of one task that are part of one batch."""

    lease: Lease
    size: int


class LeaseTable:
    """A thread-safe table of leased tasks and of reports that the master has not answered yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, HeldLease] = {}
        self._ended: dict[str, protocol.Json] = {}
        """Done or failed, not yet answered by the master: task -> its entry."""
        self._failures: set[str] = set()
        self._not_yet_durable: deque[tuple[int, protocol.Json]] = deque(maxlen=_MAX_NOT_YET_DURABLE)
        """Number of the call that acknowledged a task, and its entry: not known to be in a snapshot
        of the master."""
        self._counts: dict[str, Counts] = {}
        self._bases: dict[str, int] = {}
        """Data set -> attempts of leases that are over with the model that they trained."""

    @property
    def counts(self) -> Counts:
        """The sum over all data sets."""
        with self._lock:
            rows = [dataclasses.astuple(counts) for counts in self._counts.values()]
        return Counts(*(sum(column) for column in zip(*rows)))

    def counts_of(self, dataset: str) -> Counts:
        """Returns the counts of one data set; the object is updated by later steps."""
        counts = self._counts.get(dataset)
        return self._counts.setdefault(dataset, Counts()) if counts is None else counts

    def add(self, lease: Lease) -> bool:
        """Adds a lease; False if the table has it already, because an answer was repeated."""
        with self._lock:
            entry = self._entries.get(lease.task)
            if entry is not None and entry.lease.attempt >= lease.attempt:
                return False
            if lease.attempt <= self._bases.get(lease.dataset, -1):
                return False
            self._remove(lease.task)
            self._entries[lease.task] = HeldLease(lease)
            return True

    def trim(self, lease: Lease, remaining: int) -> Lease | None:
        """Cuts off the front of a task, which the model has already.

        Args:
            lease: A lease of the task, of which nothing was trained.
            remaining: Records of its end that the model lacks.

        Returns:
            A lease of these records; None where there are none, and the task is done.
        """
        with self._lock:
            entry = self._active(lease)
            if entry is None or remaining >= lease.size:
                return lease
            entry.before += lease.size - remaining
            entry.lease = dataclasses.replace(lease, start=lease.end - remaining)
            if remaining == 0:
                self._ended[lease.task] = entry.done_entry()
                return None
            return entry.lease

    def remaining_after(self, portions: Sequence[Portion]) -> dict[str, int]:
        """Task -> records of its end that remain to be trained after a step on these portions."""
        remaining: dict[str, int] = {}
        with self._lock:
            for portion in portions:
                entry = self._active(portion.lease)
                if entry is not None:
                    before = remaining.get(portion.lease.task, entry.lease.size - entry.trained)
                    remaining[portion.lease.task] = before - portion.size
        return remaining

    def is_active(self, lease: Lease) -> bool:
        """Returns whether records of the lease are still to be trained."""
        with self._lock:
            return self._active(lease) is not None

    def record_step(self, portions: Sequence[Portion], metrics: Mapping[str, float]) -> bool:
        """Records that a step trained on these portions.

        Returns:
            Whether the step completed a task, so that there is something to report.
        """
        finished = False
        with self._lock:
            for index, portion in enumerate(portions):
                counts = self.counts_of(portion.lease.dataset)
                counts.steps += index == 0
                counts.trained += portion.size
                entry = self._active(portion.lease)
                if entry is None:
                    counts.wasted += portion.size
                    continue
                entry.trained += portion.size
                entry.steps += index == 0
                for name, value in metrics.items():
                    entry.sums[name] = entry.sums.get(name, 0.0) + float(value) * portion.size
                    entry.weights[name] = entry.weights.get(name, 0) + portion.size
                if entry.done:
                    self._ended[portion.lease.task] = entry.done_entry()
                    finished = True
        return finished

    def fail(
        self, lease: Lease, error: str, record: int | None = None, *, transient: bool = False
    ) -> None:
        """Records that a task cannot be read; others train what is not trained of it.

        Args:
            lease: The task's.
            error: What went wrong, as text.
            record: The record at fault, where it is known.
            transient: Whether the storage failed, and not the data.
        """
        with self._lock:
            entry = self._active(lease)
            if entry is None:
                return
            failure = {**lease.ref, "error": error[:_MAX_ERROR_CHARS]}
            if entry.trained and lease.kind == "training":
                failure["counted"] = entry.trained
            if record is not None:
                failure["record"] = record
            if transient:
                failure["transient"] = True
            self._ended[lease.task] = failure
            self._failures.add(lease.task)
            self.counts_of(lease.dataset).failed += 1

    def drop_lost(self, reported: Sequence[protocol.Json], tasks: Collection[str]) -> list[str]:
        """Drops tasks that the master leased to other trainers.

        Tasks that have ended stay: the answer to their report decides. So do tasks that were leased
        again since.

        Args:
            reported: The entries that were reported to the master as held.
            tasks: Ids of those that it answered are lost.

        Returns:
            The ids of those that were dropped.
        """
        with self._lock:
            return [
                entry["task"]
                for entry in reported
                if entry["task"] in tasks and self._drop(entry["task"], entry["attempt"])
            ]

    def report(self) -> protocol.Report:
        """Tasks that are done or failed; repeated by each call until `apply_results`."""
        report = protocol.Report()
        with self._lock:
            for task, entry in self._ended.items():
                (report.failed if task in self._failures else report.done).append(dict(entry))
        return report

    def apply_results(
        self, report: protocol.Report, results: Sequence[str], call: int
    ) -> list[str]:
        """Applies the master's answer to a report, which was sent in the call of this number.

        Returns:
            Tasks that the master did not accept: their leases were over.
        """
        refused = []
        entries = [*report.done, *report.failed, *report.back]
        with self._lock:
            for index, entry in enumerate(entries):
                result = results[index] if index < len(results) else "unanswered"
                held_lease = self._entries.get(entry["task"])
                if held_lease is None or held_lease.lease.attempt != entry["attempt"]:
                    continue
                if result == "unanswered":
                    continue
                if result == _ACCEPTED:
                    if index < len(report.done):
                        self._not_yet_durable.append((call, _kept(held_lease.lease, entry)))
                        self._count_acknowledged(held_lease, held_lease.trained)
                    else:
                        self._count_acknowledged(held_lease, entry.get("counted", 0))
                else:
                    refused.append(held_lease.lease.task)
                self._remove(held_lease.lease.task)
        return refused

    def mark_durable(self, call: int) -> None:
        """Records that even another master knows everything reported up to this call."""
        with self._lock:
            while self._not_yet_durable and self._not_yet_durable[0][0] <= call:
                self._not_yet_durable.popleft()

    def not_yet_durable(self) -> list[protocol.Json]:
        """Acknowledgements that a master which takes over may not have."""
        with self._lock:
            return [entry for _, entry in self._not_yet_durable]

    def held_entries(self) -> list[protocol.Json]:
        """Returns the entries of all held tasks for a heartbeat."""
        with self._lock:
            return [entry.ref for entry in self._entries.values()]

    def clear(self, dataset: str | None = None) -> list[protocol.Json]:
        """Removes all tasks, or those of one data set; returns their entries for `back`."""
        with self._lock:
            removed = [e for e in self._entries.values() if _belongs_to(e.lease, dataset)]
            back = [entry.back_entry() for entry in removed]
            for entry, sent in zip(removed, back):
                self._count_acknowledged(entry, sent.get("counted", 0))
                self._remove(entry.lease.task)
        return back

    def unfinished(self, dataset: str) -> list[protocol.Json]:
        """Entries for `back` of a data set's tasks that are neither done nor failed."""
        with self._lock:
            return [
                entry.back_entry()
                for task, entry in self._entries.items()
                if _belongs_to(entry.lease, dataset) and task not in self._ended
            ]

    def leases(self) -> list[tuple[Lease, int]]:
        """Leases in the order in which they came, and how many records of each were trained."""
        with self._lock:
            active = [entry for task, entry in self._entries.items() if task not in self._ended]
            return [(entry.lease, entry.trained) for entry in active]

    def tracked_tasks(self) -> set[str]:
        """Tasks that are held, or that must be reported to a master which takes over."""
        with self._lock:
            return {*self._entries, *(entry["task"] for _, entry in self._not_yet_durable)}

    def discard(self, tasks: Collection[str]) -> None:
        """Removes tasks that another member has reported; nothing of them counts as wasted."""
        with self._lock:
            for task in tasks:
                if (entry := self._entries.get(task)) is not None:
                    entry.trained = 0
                    self._remove(task)

    def rewind(self, dataset: str, base: int) -> None:
        """Removes everything about a data set, which the master has set back with the model.

        Args:
            dataset: The data set.
            base: Leases with attempts up to this are over, also those of answers on their way.
        """
        with self._lock:
            self._bases[dataset] = base
            for task, entry in list(self._entries.items()):
                if entry.lease.dataset == dataset and entry.lease.attempt <= base:
                    self._remove(task)
            current = [(call, e) for call, e in self._not_yet_durable if e["attempt"] > base]
            self._not_yet_durable.clear()
            self._not_yet_durable.extend(current)

    def drop_unstarted(self) -> None:
        """Removes leases of which no record was trained and that did not fail.

        For a member that begins to lead. The master leases these tasks again, in its order; here
        they may be in another one: tasks that this member leased ahead when it led before precede
        those that other leaders have planned since.
        """
        with self._lock:
            for task, entry in list(self._entries.items()):
                if not entry.trained and task not in self._ended:
                    self._remove(task)

    def handover(self) -> tuple[list[protocol.Json], list[protocol.Json]]:
        """Entries that a successor sends when it joins: done tasks, held tasks."""
        with self._lock:
            ended = [e for task, e in self._ended.items() if task not in self._failures]
            done = {entry["task"] for entry in ended}
            refs = [entry.lease.ref for task, entry in self._entries.items() if task not in done]
            return [*(entry for _, entry in self._not_yet_durable), *ended], refs

    def complete_handover(self, lost: Collection[str]) -> None:
        """Applies the master's answer to `handover`: it has recorded what was done.

        What was handed over becomes durable with the first call after this, not before.
        """
        with self._lock:
            for task in [task for task in self._ended if task not in self._failures]:
                lease = self._entries[task].lease
                self._not_yet_durable.append((1, _kept(lease, self._ended[task])))
                self._entries[task].trained = 0
                self._remove(task)
            for task in lost:
                self._remove(task)

    def dump(self) -> protocol.Json:
        """Returns the table as JSON, for another process; see `load`."""
        with self._lock:
            return {
                "held": [dataclasses.asdict(entry) for entry in self._entries.values()],
                "ended": self._ended,
                "failures": sorted(self._failures),
                "unsafe": [entry for _, entry in self._not_yet_durable],
            }

    def load(self, state: protocol.Json) -> None:
        """Replaces all entries by those that another process dumped."""
        with self._lock:
            copies = map(dict, state["held"])
            entries = [HeldLease(Lease(**copy.pop("lease")), **copy) for copy in copies]
            self._entries = {entry.lease.task: entry for entry in entries}
            self._ended = dict(state["ended"])
            self._failures = set(state["failures"])
            self._not_yet_durable.clear()
            self._not_yet_durable.extend((1, entry) for entry in state["unsafe"])

    @property
    def has_report(self) -> bool:
        """Whether there is something to report."""
        with self._lock:
            return bool(self._ended)

    @property
    def is_empty(self) -> bool:
        """Whether no task is held."""
        with self._lock:
            return not self._entries

    def _active(self, lease: Lease) -> HeldLease | None:
        """Returns the lease's entry, unless it is lost, of another attempt, or has ended."""
        entry = self._entries.get(lease.task)
        if entry is None or entry.lease.attempt != lease.attempt or lease.task in self._ended:
            return None
        return entry

    def _drop(self, task: str, attempt: int) -> bool:
        entry = self._entries.get(task)
        if entry is None or entry.lease.attempt != attempt or task in self._ended:
            return False
        return self._remove(task)

    def _count_acknowledged(self, entry: HeldLease, records: int) -> None:
        """Counts trained records of a task as acknowledged."""
        self.counts_of(entry.lease.dataset).acknowledged += records
        entry.trained -= records

    def _remove(self, task: str) -> bool:
        entry = self._entries.pop(task, None)
        self._ended.pop(task, None)
        self._failures.discard(task)
        if entry is None:
            return False
        self.counts_of(entry.lease.dataset).wasted += entry.trained
        return True


def _kept(lease: Lease, entry: protocol.Json) -> protocol.Json:
    """Returns what a master that takes over needs of an acknowledgement: metrics count in evaluations alone.

    With those of thousands of tasks the call would be longer than it may be.
    """
    if lease.kind == "evaluation":
        return entry
    return {name: value for name, value in entry.items() if name != "metrics"}


def _belongs_to(lease: Lease, dataset: str | None) -> bool:
    return dataset is None or lease.dataset == dataset
