"""Chooses a round's initial snapshot, and the agents that send its parts (pure)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from edl.data.snapshot_parts import SnapshotPart
from edl.errors import RoundOver


@dataclass(frozen=True)
class SnapshotChoice:
    """The snapshot from which a round starts: the newest complete one."""

    parts: tuple[SnapshotPart, ...]
    """The parts, in order of rank."""
    owners: tuple[int, ...]
    """For each part, the rank of the first agent that has it."""

    @property
    def step(self) -> int:
        """The step after which the snapshot was saved."""
        return self.parts[0].step


def dump(parts: Iterable[SnapshotPart]) -> bytes:
    """Encodes the parts of an agent for the other agents."""
    return json.dumps([asdict(part) for part in parts], separators=(",", ":")).encode()


NOTHING = b"null"
"""Announced by an agent that cannot keep snapshots."""


def load(raw: bytes) -> list[SnapshotPart] | None:
    """Decodes the result of `dump`; returns None for `NOTHING`.

    Raises:
        RoundOver: The bytes are malformed.
    """
    if raw == NOTHING:
        return None
    try:
        return [
            SnapshotPart(**{name: int(value) for name, value in entry.items()})
            for entry in json.loads(raw)
        ]
    except (ValueError, TypeError, AttributeError) as error:
        raise RoundOver(f"a member of this round announced malformed parts: {raw!r:.80}") from error


def choose(holdings: Sequence[Iterable[SnapshotPart] | None]) -> SnapshotChoice | None:
    """Returns the snapshot to start from; None if no snapshot is complete, or an agent cannot keep any.

    Args:
        holdings: The parts of each agent, in order of rank.
    """
    owners: dict[SnapshotPart, int] = {}
    for rank, parts in reversed(list(enumerate(holdings))):
        if parts is None:
            return None  # all processes must start from the same state
        owners |= dict.fromkeys(parts, rank)
    snapshots: dict[tuple[int, int, int], dict[int, SnapshotPart]] = defaultdict(dict)
    for part in owners:
        snapshots[part.snapshot][part.rank] = part
    complete = [
        snapshot
        for snapshot, ranks in snapshots.items()
        if snapshot[2] > 0 and set(ranks) == set(range(snapshot[2]))
    ]
    if not complete:
        return None
    chosen = snapshots[max(complete)]
    ordered = tuple(chosen[rank] for rank in range(len(chosen)))
    return SnapshotChoice(ordered, tuple(owners[part] for part in ordered))


def needed(
    choice: SnapshotChoice, first_rank: int, processes: int, world_size: int
) -> tuple[SnapshotPart, ...]:
    """Returns the parts that an agent's processes load.

    If there are as many parts as processes in the round, each process loads one part, otherwise all.
    """
    if len(choice.parts) == world_size:
        return choice.parts[first_rank : first_rank + processes]
    return choice.parts
