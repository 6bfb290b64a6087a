"""What `watched` noted, read back. Pure but for reading files."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

LEFT = 143
"""Exit code of a trainer that was told to leave and did."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step as one trainer saw it; fields that its kind of training lacks are 0."""

    at_s: float
    """Seconds since the epoch."""
    number: int
    """Of all trainers together in synchronous training; of this trainer alone otherwise."""
    loss: float
    records: int
    round: int = 0
    rank: int = 0
    world: int = 0
    version: int = 0
    """Of the parameters at the servers."""
    seconds: float = 0.0
    """It took, from the end of the one before."""


@dataclass(frozen=True, slots=True)
class Life:
    """One trainer, from its start to its end; times are seconds since the epoch."""

    name: str
    pids: tuple[int, ...]
    """One for each start of its process."""
    start_s: float
    steps: tuple[Step, ...]
    sigterm_s: float | None
    end_s: float | None
    code: int | None
    """Exit code; None while it runs, or where it was killed with its container."""

    @property
    def stop_s(self) -> float | None:
        """From SIGTERM to the end."""
        if self.sigterm_s is None or self.end_s is None:
            return None
        return self.end_s - self.sigterm_s

    def next_step_s(self, after_s: float) -> float:
        """From a moment to the next step; infinite where there is none."""
        later = (step.at_s for step in self.steps if step.at_s > after_s)
        return next(later, float("inf")) - after_s


def read(folder: Path) -> list[Life]:
    """All lives in a folder, by name."""
    return sorted((_life(path) for path in folder.glob("*.jsonl")), key=lambda life: life.name)


def at_work(folder: Path) -> int:
    """How many have trained and go on; fails where one has failed, with its last words."""
    found = read(folder)
    for life in found:
        assert life.code in (None, 0, LEFT), (
            f"{life.name} ended with {life.code}: {_last(folder, life)}"
        )
    return sum(bool(life.steps) and life.end_s is None and not life.sigterm_s for life in found)


def all_steps(found: Iterable[Life]) -> list[Step]:
    """The steps of all, one after the other."""
    return sorted((step for life in found for step in life.steps), key=lambda one: one.at_s)


def together(found: Iterable[Life]) -> list[Step]:
    """The steps of a synchronous job, each once, as the first member saw it that ended it."""
    first: dict[int, Step] = {}
    for step in all_steps(found):
        first.setdefault(step.number, step)
    return [first[number] for number in sorted(first)]


def longest_pause_s(steps: Sequence[Step], from_s: float, to_s: float) -> float:
    """The longest time from one step to the next inside a span."""
    times = sorted(step.at_s for step in steps if from_s <= step.at_s <= to_s)
    return max((later - earlier for earlier, later in pairwise(times)), default=float("inf"))


def disagreements(found: Iterable[Life]) -> list[int]:
    """Steps of a synchronous job whose loss is not the same at all members."""
    losses: dict[int, set[float]] = {}
    for life in found:
        for step in life.steps:
            losses.setdefault(step.number, set()).add(step.loss)
    return sorted(number for number, seen in losses.items() if len(seen) > 1)


def means(steps: Sequence[Step], parts: int) -> list[float]:
    """The mean loss of each of so many equal parts of a run."""
    bounds = [len(steps) * part // parts for part in range(parts + 1)]
    spans = [steps[begin:end] for begin, end in pairwise(bounds)]
    return [sum(step.loss for step in span) / len(span) for span in spans]


def _last(folder: Path, life: Life) -> str:
    return (folder / f"{life.name}.log").read_text(encoding="utf-8").rstrip().rpartition("\n")[2]


def _life(path: Path) -> Life:
    notes = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    first = {note["what"]: note for note in reversed(notes)}
    last = {note["what"]: note for note in notes}
    end = last.get("end", {})
    return Life(
        path.stem,
        tuple(note["pid"] for note in notes if note["what"] == "start"),
        notes[0]["at_s"],
        tuple(_step(note) for note in notes if note["what"] == "step"),
        first.get("sigterm", {}).get("at_s"),
        end.get("at_s"),
        end.get("code"),
    )


def _step(note: dict[str, Any]) -> Step:
    number = note["step"] if "step" in note else note["number"]
    more = {name: note.get(name, 0) for name in ("round", "rank", "world", "version", "seconds")}
    return Step(note["at_s"], number, note["loss"], note["records"], **more)
