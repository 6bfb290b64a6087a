"""The lease table: the tasks that this trainer has leased, their progress, and pending reports.

Pure except for its lock. A task is acknowledged only after all its records were trained on, not when
they were read.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from edl.master import protocol
from edl.master.protocol import Lease

_ACCEPTED = "accepted"
_MAX_NOT_YET_DURABLE = 16_384
"""Maximum number of acknowledgements kept for a new master; no trainer makes as many in a second."""
_MAX_ERROR_CHARS = 500
"""Maximum length of the error text in a report of a failed task."""
_DIVISIBLE = ("training", "evaluation")
"""Kinds of tasks that trainers can share; the outputs of a prediction are one file per task."""


@dataclass(frozen=True)
class Portion:
    """The records of one task in one batch."""

    lease: Lease
    size: int


@dataclass
class Counts:
    """This trainer's numbers of records, tasks and steps since it started."""

    trained: int = 0
    acknowledged: int = 0
    wasted: int = 0
    """Records trained in tasks that were then lost, failed or handed back; they are trained again."""
    failed: int = 0
    """Tasks that failed."""
    steps: int = 0

    def add(self, other: Counts) -> None:
        """Adds the numbers of another data set."""
        self.trained += other.trained
        self.acknowledged += other.acknowledged
        self.wasted += other.wasted
        self.failed += other.failed
        self.steps += other.steps

    def summary(self, handed_back: int) -> str:
        """Formats the counts for the end of a log line; losses and tasks that are zero are left out.

        Args:
            handed_back: Number of tasks that were handed back.

        Returns:
            The text; "" if this trainer neither trained records nor handed back tasks. In a synchronous
            group, only the leader leases tasks.
        """
        if not (self.trained or handed_back):
            return ""
        parts = [f"{self.trained} records trained", f"{self.acknowledged} acknowledged"]
        if self.wasted:
            parts.append(f"{self.wasted} lost")
        if handed_back:
            parts.append(f"{handed_back} task{'' if handed_back == 1 else 's'} handed back")
        return f": {', '.join(parts)}"


@dataclass
class HeldLease:
    """A lease and the progress of its task."""

    lease: Lease
    trained: int = 0
    before: int = 0
    """Number of the task's first records that `trim` dropped because the model has already seen them."""
    steps: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    """Metric -> sum over records."""
    weights: dict[str, int] = field(default_factory=dict)
    """Metric -> number of records in the sum."""

    @property
    def done(self) -> bool:
        """Whether all records were trained."""
        return self.trained >= self.lease.size

    @property
    def ref(self) -> protocol.Json:
        """The task's entry in a heartbeat."""
        return {**self.lease.ref, "trained": self.trained}

    def done_entry(self) -> protocol.Json:
        """Returns the finished task's entry in `done`."""
        return {**self.lease.ref, "records": self.trained, **self._results()}

    def back_entry(self) -> protocol.Json:
        """Returns the task's entry in `back`, with a count of its trained records if the task can be split.

        The entry counts at most all records but the last, because only an acknowledgement may count a
        whole task.
        """
        counted = self.before + min(self.trained, self.lease.size - 1)
        if counted <= 0 or self.lease.kind not in _DIVISIBLE:
            return self.ref
        return {**self.ref, "counted": counted, **self._results()}

    def _results(self) -> protocol.Json:
        """Returns the steps and the mean metrics of the trained records."""
        means = {name: self.sums[name] / self.weights[name] for name in self.sums}
        return {"steps": self.steps, **({"metrics": means} if means else {})}


class LeaseTable:
    """A thread-safe table of leased tasks and of reports that the master has not confirmed yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, HeldLease] = {}
        self._ended: dict[str, protocol.Json] = {}
        """Done or failed task that the master has not confirmed yet -> its entry in a report."""
        self._failures: set[str] = set()
        self._not_yet_durable: deque[tuple[int, protocol.Json]] = deque(maxlen=_MAX_NOT_YET_DURABLE)
        """Acknowledgements that may not be in the master's snapshot: the call's number and the task's entry."""
        self._counts: dict[str, Counts] = {}
        self._bases: dict[str, int] = {}
        """Data set -> highest attempt of leases that ended when the data set was rewound."""

    @property
    def counts(self) -> Counts:
        """The sums of the counts over all data sets."""
        total = Counts()
        with self._lock:
            for counts in self._counts.values():
                total.add(counts)
        return total

    def counts_of(self, dataset: str) -> Counts:
        """Returns the counts of one data set; later steps update the same object."""
        counts = self._counts.get(dataset)
        return self._counts.setdefault(dataset, Counts()) if counts is None else counts

    def add(self, lease: Lease) -> bool:
        """Adds a lease; returns False if the lease is outdated, or known already from an earlier answer."""
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
        """Drops the first records of a task, which the model has already seen.

        Args:
            lease: The task's lease, of which no record was trained yet.
            remaining: Number of records at the lease's end that the model has not seen.

        Returns:
            A lease of the remaining records; None if none remain and the task is done.
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
        """Returns task -> number of records that remain to be trained after a step on these portions."""
        remaining: dict[str, int] = {}
        with self._lock:
            for portion in portions:
                entry = self._active(portion.lease)
                if entry is not None:
                    before = remaining.get(portion.lease.task, entry.lease.size - entry.trained)
                    remaining[portion.lease.task] = before - portion.size
        return remaining

    def is_active(self, lease: Lease) -> bool:
        """Returns whether the lease is valid and its task has not ended."""
        with self._lock:
            return self._active(lease) is not None

    def record_step(self, portions: Sequence[Portion], metrics: Mapping[str, float]) -> bool:
        """Records that a step trained on these portions.

        Returns:
            Whether the step completed a task, which must then be reported.
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
        """Records that a task cannot be read; other trainers get its remaining records.

        Args:
            lease: Lease of the task.
            error: Text of the error.
            record: Number of the record that failed, if known.
            transient: Whether the storage failed, so that the same read may work later.
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
        """Drops tasks that the master has leased to other trainers.

        Keeps tasks that have ended until their report is answered. Also keeps tasks that were leased to this
        trainer again in the meantime.

        Args:
            reported: The entries that were reported to the master as held.
            tasks: Ids of the tasks that the master reported as lost.

        Returns:
            The ids of the dropped tasks.
        """
        with self._lock:
            return [
                entry["task"]
                for entry in reported
                if entry["task"] in tasks and self._drop(entry["task"], entry["attempt"])
            ]

    def report(self) -> protocol.Report:
        """Returns the tasks that are done or failed and that `apply_results` has not confirmed yet."""
        report = protocol.Report()
        with self._lock:
            for task, entry in self._ended.items():
                entries = report.failed if task in self._failures else report.done
                entries.append(dict(entry))
        return report

    def apply_results(
        self, report: protocol.Report, results: Sequence[str], call: int
    ) -> list[str]:
        """Applies the master's answer to a report.

        Args:
            report: The report.
            results: The master's result for each entry: done, failed, then back.
            call: Number of the call that sent the report.

        Returns:
            The tasks whose results the master did not accept, because their leases had ended.
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
        """Records that even a new master would know all reports up to this call."""
        with self._lock:
            while self._not_yet_durable and self._not_yet_durable[0][0] <= call:
                self._not_yet_durable.popleft()

    def not_yet_durable(self) -> list[protocol.Json]:
        """Returns the acknowledgements that a new master may not have."""
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
        """Returns the entries for `back` of a data set's tasks that are neither done nor failed."""
        with self._lock:
            return [
                entry.back_entry()
                for task, entry in self._entries.items()
                if _belongs_to(entry.lease, dataset) and task not in self._ended
            ]

    def leases(self) -> list[tuple[Lease, int]]:
        """Returns the active leases in the order of their arrival, each with its number of trained records."""
        with self._lock:
            active = [entry for task, entry in self._entries.items() if task not in self._ended]
            return [(entry.lease, entry.trained) for entry in active]

    def tracked_tasks(self) -> set[str]:
        """Returns the tasks that are held, or that a new master must learn of."""
        with self._lock:
            return {*self._entries, *(entry["task"] for _, entry in self._not_yet_durable)}

    def discard(self, tasks: Collection[str]) -> None:
        """Removes tasks that another member has reported, without counting their records as wasted."""
        with self._lock:
            for task in tasks:
                if (entry := self._entries.get(task)) is not None:
                    entry.trained = 0
                    self._remove(task)

    def rewind(self, dataset: str, base: int) -> None:
        """Removes the leases of a data set that the master has rewound together with the model.

        Args:
            dataset: The data set.
            base: Leases whose attempt is at most this number have ended, including leases in answers that
                have not arrived yet.
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
        """Removes leases of tasks that have no trained records and did not fail.

        A member that becomes the leader calls this, and the master leases the tasks again in the right
        order. If the member kept leases from an earlier time as leader, they would precede tasks that
        other leaders have planned since then.
        """
        with self._lock:
            for task, entry in list(self._entries.items()):
                if not entry.trained and task not in self._ended:
                    self._remove(task)

    def handover(self) -> tuple[list[protocol.Json], list[protocol.Json]]:
        """Returns what a successor sends when it joins: the entries of done tasks, and those of held tasks."""
        with self._lock:
            ended = [e for task, e in self._ended.items() if task not in self._failures]
            done = {entry["task"] for entry in ended}
            refs = [entry.lease.ref for task, entry in self._entries.items() if task not in done]
            return [*(entry for _, entry in self._not_yet_durable), *ended], refs

    def complete_handover(self, lost: Collection[str]) -> None:
        """Applies the master's answer to a join with the entries of `handover`.

        The master has recorded the done tasks, but they become durable only with the next call.

        Args:
            lost: Held tasks that the master has leased to other trainers.
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
        """Returns the table as JSON for another process, which calls `load`."""
        with self._lock:
            return {
                "held": [dataclasses.asdict(entry) for entry in self._entries.values()],
                "ended": self._ended,
                "failures": sorted(self._failures),
                "unsafe": [entry for _, entry in self._not_yet_durable],
            }

    def load(self, state: protocol.Json) -> None:
        """Replaces all entries by the entries in another process's `dump`."""
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
        """Returns the entry of a lease that is valid and whose task has not ended, otherwise None."""
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
    """Returns the fields of an acknowledgement that a new master needs.

    Metrics matter only in evaluations, and the metrics of thousands of training tasks would exceed the size
    limit of a request.
    """
    if lease.kind == "evaluation":
        return entry
    return {name: value for name, value in entry.items() if name != "metrics"}


def _belongs_to(lease: Lease, dataset: str | None) -> bool:
    return dataset is None or lease.dataset == dataset
