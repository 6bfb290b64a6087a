"""What this trainer holds: how far each task was read and trained, and what is to be told.

Pure but for its lock. A task is acknowledged when all its records were trained, and only then:
reading is not training.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from edl import wire
from edl.wire import Lease

_ACCEPTED = "accepted"
_MOST_KEPT = 16_384
"""Acknowledgements kept for a master that takes over: more than a second's worth of any trainer."""


_MOST_TEXT = 500
"""Of an error that the master is told."""


@dataclass
class Held:
    """A lease and how far it is."""

    lease: Lease
    trained: int = 0
    steps: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    """Metric -> its sum over records."""
    weights: dict[str, int] = field(default_factory=dict)
    """Metric -> number of records in its sum."""

    @property
    def done(self) -> bool:
        """Whether all its records were trained."""
        return self.trained >= self.lease.size

    @property
    def ref(self) -> wire.Json:
        """How a heartbeat or a hand-back tells of it."""
        return {**self.lease.ref, "trained": self.trained}

    def told(self) -> wire.Json:
        """Its entry in `done`."""
        entry = {**self.lease.ref, "records": self.trained, "steps": self.steps}
        if self.sums:
            entry["metrics"] = {name: self.sums[name] / self.weights[name] for name in self.sums}
        return entry


@dataclass(frozen=True)
class Portion:
    """Records of one task that are part of one batch."""

    lease: Lease
    size: int


@dataclass
class Counts:
    """Records of this trainer, since its start."""

    trained: int = 0
    acknowledged: int = 0
    wasted: int = 0
    """Trained, but of tasks that were lost, failed or handed back: somebody trains them again."""
    failed: int = 0
    """Tasks."""
    steps: int = 0


class Book:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, Held] = {}
        self._ended: dict[str, wire.Json] = {}
        """Done or failed, not yet answered by the master: task -> its entry."""
        self._failures: set[str] = set()
        self._unsafe: deque[tuple[int, wire.Json]] = deque(maxlen=_MOST_KEPT)
        """Acknowledged by call, but not yet known to be in a snapshot."""
        self._counts: dict[str, Counts] = {}

    @property
    def counts(self) -> Counts:
        """Of all data sets together."""
        with self._lock:
            found = [dataclasses.astuple(one) for one in self._counts.values()]
        return Counts(*(sum(column) for column in zip(*found)))

    def of(self, dataset: str) -> Counts:
        """Of one data set; goes on counting."""
        found = self._counts.get(dataset)
        return self._counts.setdefault(dataset, Counts()) if found is None else found

    def take(self, lease: Lease) -> bool:
        """Enters a lease; False if this very lease is held already (an answer came twice)."""
        with self._lock:
            held = self._held.get(lease.task)
            if held is not None and held.lease.attempt >= lease.attempt:
                return False
            self._forget(lease.task)
            self._held[lease.task] = Held(lease)
            return True

    def holds(self, lease: Lease) -> bool:
        """Whether the lease is still worth to be worked on."""
        with self._lock:
            return self._current(lease) is not None

    def trained(self, portions: Sequence[Portion], metrics: Mapping[str, float]) -> bool:
        """A step trained on these records.

        Returns:
            Whether a task was finished by it, so that there is something to tell.
        """
        finished = False
        with self._lock:
            for place, portion in enumerate(portions):
                counts = self.of(portion.lease.dataset)
                counts.steps += place == 0
                counts.trained += portion.size
                held = self._current(portion.lease)
                if held is None:
                    counts.wasted += portion.size
                    continue
                held.trained += portion.size
                held.steps += place == 0
                for name, value in metrics.items():
                    held.sums[name] = held.sums.get(name, 0.0) + float(value) * portion.size
                    held.weights[name] = held.weights.get(name, 0) + portion.size
                if held.done:
                    self._ended[portion.lease.task] = held.told()
                    finished = True
        return finished

    def fail(self, lease: Lease, error: str, record: int | None = None) -> None:
        """A task cannot be read; what was trained of it, somebody trains again."""
        with self._lock:
            held = self._current(lease)
            if held is None:
                return
            entry = {**lease.ref, "error": error[:_MOST_TEXT]}
            if record is not None:
                entry["record"] = record
            self._ended[lease.task] = entry
            self._failures.add(lease.task)
            self.of(lease.dataset).failed += 1

    def lose(self, told: Sequence[wire.Json], tasks: Collection[str]) -> list[str]:
        """Tasks that the master gave to others.

        What has ended stays: the answer to its report decides. So does what was leased again.

        Args:
            told: What the master was told to be held.
            tasks: Ids of those it says are lost.

        Returns:
            The ids of those that are held no more.
        """
        with self._lock:
            return [
                entry["task"]
                for entry in told
                if entry["task"] in tasks and self._lose(entry["task"], entry["attempt"])
            ]

    def report(self) -> wire.Report:
        """What the master is to be told; stays until `answered`."""
        report = wire.Report()
        with self._lock:
            for task, entry in self._ended.items():
                (report.failed if task in self._failures else report.done).append(dict(entry))
        return report

    def answered(self, report: wire.Report, results: Sequence[str], call: int) -> list[str]:
        """The master answered a report, in the call of this number.

        Returns:
            Tasks it did not accept: their leases were over.
        """
        refused = []
        entries = [*report.done, *report.failed, *report.back]
        with self._lock:
            for place, entry in enumerate(entries):
                result = results[place] if place < len(results) else "unanswered"
                held = self._held.get(entry["task"])
                if held is None or held.lease.attempt != entry["attempt"]:
                    continue
                if result == "unanswered":
                    continue
                if result == _ACCEPTED and place < len(report.done):
                    self.of(held.lease.dataset).acknowledged += held.trained
                    held.trained = 0
                    self._unsafe.append((call, entry))
                elif result != _ACCEPTED:
                    refused.append(held.lease.task)
                self._forget(held.lease.task)
        return refused

    def safe(self, call: int) -> None:
        """Any master knows by now what was told up to this call."""
        with self._lock:
            while self._unsafe and self._unsafe[0][0] <= call:
                self._unsafe.popleft()

    def unsafe(self) -> list[wire.Json]:
        """Acknowledgements that a master who takes over may not know of."""
        with self._lock:
            return [entry for _, entry in self._unsafe]

    def held(self) -> list[wire.Json]:
        """Every task held, as a heartbeat tells it."""
        with self._lock:
            return [held.ref for held in self._held.values()]

    def clear(self, dataset: str | None = None) -> list[wire.Json]:
        """Forgets all that is held, or all of one data set; returns what is to be handed back."""
        with self._lock:
            gone = [held for held in self._held.values() if _of(held.lease, dataset)]
            back = [held.ref for held in gone]
            for held in gone:
                self._forget(held.lease.task)
        return back

    def unfinished(self, dataset: str) -> list[wire.Json]:
        """What is held of a data set and is neither done nor failed."""
        with self._lock:
            return [
                held.ref
                for task, held in self._held.items()
                if _of(held.lease, dataset) and task not in self._ended
            ]

    def leases(self) -> list[tuple[Lease, int]]:
        """What is to be trained, as it was leased: leases, and how many of their records were."""
        with self._lock:
            held = [one for task, one in self._held.items() if task not in self._ended]
            return [(one.lease, one.trained) for one in held]

    def known(self) -> set[str]:
        """Tasks that are held, or that a master who takes over must hear of."""
        with self._lock:
            return {*self._held, *(entry["task"] for _, entry in self._unsafe)}

    def settle(self, tasks: Collection[str]) -> None:
        """Nobody needs to hear of these tasks again: forgets them, for somebody else told of them."""
        with self._lock:
            for task in tasks:
                if (held := self._held.get(task)) is not None:
                    held.trained = 0
                    self._forget(task)

    def inherit(self) -> tuple[list[wire.Json], list[wire.Json]]:
        """What a successor tells when it joins in another's place: what is done, what is held."""
        with self._lock:
            ended = [e for task, e in self._ended.items() if task not in self._failures]
            done = {entry["task"] for entry in ended}
            held = [one.lease.ref for task, one in self._held.items() if task not in done]
            return [*(entry for _, entry in self._unsafe), *ended], held

    def inherited(self, lost: Collection[str]) -> None:
        """The master answered what `inherit` told: it has booked what was done.

        A call that comes next is safe no sooner than this one.
        """
        with self._lock:
            for task in [task for task in self._ended if task not in self._failures]:
                self._unsafe.append((1, self._ended[task]))
                self._held[task].trained = 0
                self._forget(task)
            for task in lost:
                self._forget(task)

    def dump(self) -> wire.Json:
        """As JSON, for another process; see `load`."""
        with self._lock:
            return {
                "held": [dataclasses.asdict(one) for one in self._held.values()],
                "ended": self._ended,
                "failures": sorted(self._failures),
                "unsafe": [entry for _, entry in self._unsafe],
            }

    def load(self, dumped: wire.Json) -> None:
        """Takes over what another process dumped, in place of all that is held."""
        with self._lock:
            held = [Held(Lease(**one.pop("lease")), **one) for one in map(dict, dumped["held"])]
            self._held = {one.lease.task: one for one in held}
            self._ended = dict(dumped["ended"])
            self._failures = set(dumped["failures"])
            self._unsafe.clear()
            self._unsafe.extend((1, entry) for entry in dumped["unsafe"])

    @property
    def tells(self) -> bool:
        """Whether there is something to tell."""
        with self._lock:
            return bool(self._ended)

    @property
    def empty(self) -> bool:
        """Whether nothing is held."""
        with self._lock:
            return not self._held

    def _current(self, lease: Lease) -> Held | None:
        """The lease's entry, unless it is lost, of another attempt, or has ended."""
        held = self._held.get(lease.task)
        if held is None or held.lease.attempt != lease.attempt or lease.task in self._ended:
            return None
        return held

    def _lose(self, task: str, attempt: int) -> bool:
        held = self._held.get(task)
        if held is None or held.lease.attempt != attempt or task in self._ended:
            return False
        return self._forget(task)

    def _forget(self, task: str) -> bool:
        held = self._held.pop(task, None)
        self._ended.pop(task, None)
        self._failures.discard(task)
        if held is None:
            return False
        self.of(held.lease.dataset).wasted += held.trained
        return True


def _of(lease: Lease, dataset: str | None) -> bool:
    return dataset is None or lease.dataset == dataset
