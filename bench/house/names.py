"""Names: the share that says nothing of what it holds, and class names that mean several things."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bench.house.tree import Module

PLACEHOLDERS = frozenset(
    [
        "found",
        "one",
        "made",
        "told",
        "asked",
        "wanted",
        "given",
        "known",
        "kept",
        "held",
        "left",
        "seen",
        "taken",
        "went",
        "gone",
        "said",
        "heard",
        "each",
        "mine",
        "rest",
        "what",
        "why",
        "here",
        "there",
        "more",
    ]
)
"""Bare participles and fillers. httpx, svcs, structlog and kopf bind them in 0 to 0.18 % of names."""
MAX_PERCENT = 0.5
"""Of placeholder names in a room."""


@dataclass(frozen=True)
class RoomNames:
    """Counts of the names that a room binds."""

    placeholders: int
    total: int

    @property
    def percent(self) -> float:
        """Share of placeholders."""
        return 100 * self.placeholders / self.total if self.total else 0.0


def by_room(modules: Iterable[Module]) -> dict[str, RoomNames]:
    """How many names each room binds, and how many of them are placeholders."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for module in modules:
        for name in module.bound_names():
            counts[module.room][0] += name.strip("_") in PLACEHOLDERS
            counts[module.room][1] += 1
    return {room: RoomNames(*pair) for room, pair in counts.items()}


def repeated_classes(modules: Iterable[Module], reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Public classes that several files of one distribution define, without a written reason.

    Args:
        modules: Of all distributions: `sdk/src` is one, all others are the other.
        reasons: Per class name, why it may stand in several files.
    """
    paths: dict[tuple[bool, str], set[str]] = defaultdict(set)
    for module in modules:
        for definition in module.classes:
            if not definition.name.startswith("_") and definition.name not in reasons:
                paths[module.room == "sdk/src", definition.name].add(module.path)
    return {name: sorted(files) for (_, name), files in sorted(paths.items()) if len(files) > 1}
