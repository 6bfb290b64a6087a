"""Traces of trainers, as `watched.py` writes them. Pure except for reading files."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

SIGTERM_EXIT = 143
"""Exit code of a trainer that stopped on SIGTERM."""
_EVALUATION = re.compile(r"evaluation of step \d+: loss [\d.e-]+, accuracy ([\d.]+)")


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One step of one trainer; fields that its kind of training lacks are 0."""

    at_s: float
    """Seconds since the epoch."""
    number: int
    """Counted over the group in synchronous training, over this trainer otherwise."""
    records: int
    loss: float = 0.0
    round: int = 0
    rank: int = 0
    world_size: int = 0
    version: int = 0
    """Version of the servers' parameters."""
    seconds: float = 0.0
    """Duration, from the end of the previous step."""


@dataclass(frozen=True, slots=True)
class TrainerTrace:
    """The trace of one trainer from its start to its end; times in seconds since the epoch."""

    name: str
    pids: tuple[int, ...]
    """One process id for each start of the trainer."""
    start_s: float
    steps: tuple[TrainingStep, ...]
    sigterm_s: float | None
    end_s: float | None
    code: int | None
    """Exit code; None while it runs, or if it was killed with its container."""

    @property
    def stop_s(self) -> float | None:
        """From SIGTERM to the end."""
        if self.sigterm_s is None or self.end_s is None:
            return None
        return self.end_s - self.sigterm_s


def read(folder: Path) -> list[TrainerTrace]:
    """All traces in a folder, sorted by name."""
    notes = {path.stem: _notes(path) for path in folder.glob("*.jsonl")}
    return [_trace(name, notes[name]) for name in sorted(notes) if notes[name]]


def stopped_between(
    traces: Iterable[TrainerTrace], span: tuple[float, float]
) -> list[TrainerTrace]:
    """Returns the traces of the trainers that received SIGTERM in a span of time."""
    from_s, to_s = span
    return [trace for trace in traces if from_s <= (trace.sigterm_s or 0.0) <= to_s]


def evaluated_accuracy(folder: Path) -> float:
    """Returns the accuracy of the last model, from the last line that a trainer printed about it."""
    printed = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.log"))
    match = _EVALUATION.search(printed)
    assert match is not None, printed
    return float(match[1])


def working(folder: Path) -> int:
    """Number of trainers that have trained and still run; raises if one failed."""
    traces = read(folder)
    for trace in traces:
        assert trace.code in (None, 0, SIGTERM_EXIT), (
            f"{trace.name} ended with {trace.code}: {_last(folder, trace)}"
        )
    return sum(
        bool(trace.steps) and trace.end_s is None and not trace.sigterm_s for trace in traces
    )


def all_steps(traces: Iterable[TrainerTrace]) -> list[TrainingStep]:
    """Returns the steps of all trainers, in order of time."""
    return sorted((step for trace in traces for step in trace.steps), key=lambda step: step.at_s)


def group_steps(traces: Iterable[TrainerTrace]) -> list[TrainingStep]:
    """Returns the steps of a synchronous job, each once, from the member that finished it first."""
    first: dict[int, TrainingStep] = {}
    for step in all_steps(traces):
        first.setdefault(step.number, step)
    return [first[number] for number in sorted(first)]


def longest_pause_s(steps: Sequence[TrainingStep], from_s: float, to_s: float) -> float:
    """Returns the longest time between consecutive steps within a span."""
    times = sorted(step.at_s for step in steps if from_s <= step.at_s <= to_s)
    return max((later - earlier for earlier, later in pairwise(times)), default=float("inf"))


def disagreements(traces: Iterable[TrainerTrace]) -> list[int]:
    """Numbers of the steps whose loss differs between members of a synchronous job."""
    losses: dict[int, set[float]] = {}
    for trace in traces:
        for step in trace.steps:
            losses.setdefault(step.number, set()).add(step.loss)
    return sorted(number for number, values in losses.items() if len(values) > 1)


def means(steps: Sequence[TrainingStep], parts: int) -> list[float]:
    """Returns the mean loss of each of `parts` equal parts of a run."""
    bounds = [len(steps) * part // parts for part in range(parts + 1)]
    spans = [steps[begin:end] for begin, end in pairwise(bounds)]
    return [sum(step.loss for step in span) / len(span) for span in spans]


def _last(folder: Path, trace: TrainerTrace) -> str:
    return (folder / f"{trace.name}.log").read_text(encoding="utf-8").rstrip().rpartition("\n")[2]


def _notes(path: Path) -> list[dict[str, Any]]:
    """Returns the whole lines of a file to which a trainer may be writing; none of one that has just begun."""
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines() if line]


def _trace(name: str, notes: Sequence[dict[str, Any]]) -> TrainerTrace:
    first = {note["what"]: note for note in reversed(notes)}
    last = {note["what"]: note for note in notes}
    end = last.get("end", {})
    return TrainerTrace(
        name,
        tuple(note["pid"] for note in notes if note["what"] == "start"),
        notes[0]["at_s"],
        tuple(_step(note) for note in notes if note["what"] == "step"),
        first.get("sigterm", {}).get("at_s"),
        end.get("at_s"),
        end.get("code"),
    )


def _step(note: dict[str, Any]) -> TrainingStep:
    number = note["step"] if "step" in note else note["number"]
    names = ("loss", "round", "rank", "world_size", "version", "seconds")
    optional = {name: note.get(name, 0) for name in names}
    return TrainingStep(note["at_s"], number, note["records"], **optional)
