"""The lines of a trainer's program, which `tests.sdk.sync.fleets.Member` reads."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edl import clock
from edl.sync import SyncStep


@contextmanager
def notes(path: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yields what appends a line to the file, whole and at once."""
    with Path(path).open("a", encoding="utf-8") as out:

        def tell(line: Mapping[str, Any]) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        yield tell


def place_of(step: SyncStep) -> dict[str, Any]:
    """The fields of a step's line that every program has."""
    return {
        "step": step.step,
        "round": step.round,
        "rank": step.rank,
        "world": step.world_size,
        "at_s": clock.monotonic_s(),
    }
