"""Traces of trainers, as `watched.py` writes them. Pure except for reading files."""

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

SIGTERM_EXIT = 143


@dataclass(frozen=True, slots=True)
class BatchTrace:
    """The trace of one trainer from its start to its end; times in seconds since the epoch."""

    name: str
    start_s: float
    batches: tuple[tuple[float, int], ...]
    """When each batch was trained, and its number of records."""
    sigterm_s: float | None
    end_s: float | None
    code: int | None
    """Exit code; None while it runs, or where it was killed with its container."""

    @property
    def records(self) -> int:
        """Number of records that it trained on."""
        return sum(count for _, count in self.batches)

    @property
    def released(self) -> bool:
        """Whether it received SIGTERM."""
        return self.sigterm_s is not None

    @property
    def stop_s(self) -> float | None:
        """From SIGTERM to the end."""
        if self.sigterm_s is None or self.end_s is None:
            return None
        return self.end_s - self.sigterm_s

    def longest_pause_s(self, from_s: float, to_s: float) -> float:
        """The longest time between consecutive batches within a span."""
        times = [at_s for at_s, _ in self.batches if from_s <= at_s <= to_s]
        return max((b - a for a, b in pairwise(times)), default=0.0)


def read(folder: Path) -> list[BatchTrace]:
    """All traces in a folder, sorted by name."""
    return sorted((_trace(path) for path in folder.glob("*.jsonl")), key=lambda trace: trace.name)


def _trace(path: Path) -> BatchTrace:
    notes = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    first = {note["what"]: note for note in reversed(notes)}
    end = first.get("end", {})
    return BatchTrace(
        path.stem,
        notes[0]["at_s"],
        tuple((note["at_s"], note["records"]) for note in notes if note["what"] == "batch"),
        first.get("sigterm", {}).get("at_s"),
        end.get("at_s"),
        end.get("code"),
    )
