"""Which snapshot all processes of a round start from, and who gives it to whom (pure)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from edl.data.snapshot_parts import SnapshotPart
from edl.errors import RoundOver


@dataclass(frozen=True)
class Choice:
    """The newest snapshot of which all parts are left."""

    parts: tuple[SnapshotPart, ...]
    """In order of rank."""
    owners: tuple[int, ...]
    """For each part, the rank of the first agent that has it."""

    @property
    def step(self) -> int:
        """At which it was saved."""
        return self.parts[0].step


def dump(parts: Iterable[SnapshotPart]) -> bytes:
    """Returns what an agent announces to the others."""
    return json.dumps([asdict(part) for part in parts], separators=(",", ":")).encode()


def load(raw: bytes) -> list[SnapshotPart]:
    """Reads what `dump` returned.

    Raises:
        RoundOver: It is something else.
    """
    try:
        return [
            SnapshotPart(**{name: int(value) for name, value in entry.items()})
            for entry in json.loads(raw)
        ]
    except (ValueError, TypeError, AttributeError) as error:
        raise RoundOver(f"a member of this round announces no parts: {raw!r:.80}") from error


def choose(holdings: Sequence[Iterable[SnapshotPart]]) -> Choice | None:
    """Returns what all start from; None if no snapshot is complete.

    Args:
        holdings: The parts of each agent, in order of rank.
    """
    owners: dict[SnapshotPart, int] = {}
    for rank in reversed(range(len(holdings))):
        owners |= dict.fromkeys(holdings[rank], rank)
    snapshots: dict[tuple[int, int, int], dict[int, SnapshotPart]] = defaultdict(dict)
    for part in owners:
        snapshots[part.snapshot][part.rank] = part
    complete = [
        snapshot
        for snapshot, parts in snapshots.items()
        if snapshot[2] > 0 and set(parts) == set(range(snapshot[2]))
    ]
    if not complete:
        return None
    chosen = snapshots[max(complete)]
    parts = tuple(chosen[rank] for rank in range(len(chosen)))
    return Choice(parts, tuple(owners[part] for part in parts))


def needed(
    choice: Choice, first_rank: int, processes: int, world_size: int
) -> tuple[SnapshotPart, ...]:
    """Returns the parts that the processes of an agent load: their own, or all if those do not fit."""
    if len(choice.parts) == world_size:
        return choice.parts[first_rank : first_rank + processes]
    return choice.parts
