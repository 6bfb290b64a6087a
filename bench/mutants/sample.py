"""Which mutants are tried: the same for the same seed, and enough of each room."""

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def shares(totals: Mapping[str, int], count: int, least: int) -> dict[str, int]:
    """How many mutants of each room are tried.

    In proportion to how many there are, but at least `least` of each room, or all it has; so
    rooms with few are tried more thoroughly, and the sum is above `count` where `count` is small.
    """
    given = {room: min(least, total) for room, total in totals.items()}
    large = dict(totals)
    while large:
        left = count - sum(given[room] for room in totals if room not in large)
        quota = {room: left * total / sum(large.values()) for room, total in large.items()}
        small = [room for room in large if quota[room] <= given[room]]
        if not small:
            return given | _rounded(quota, left, totals)
        for room in small:
            del large[room]
    return given


def pick(candidates: Sequence[T], count: int, seed: int, room: str) -> list[T]:
    """The first `count` of a room's candidates in the seed's order; a larger count adds to them."""
    order = random.Random(f"{seed} {room}").sample(range(len(candidates)), len(candidates))  # noqa: S311
    return [candidates[index] for index in sorted(order[:count])]


def _rounded(quota: Mapping[str, float], left: int, totals: Mapping[str, int]) -> dict[str, int]:
    """Whole numbers with the same sum: those whose quota was cut most get one more."""
    whole = {room: int(share) for room, share in quota.items()}
    missing = left - sum(whole.values())
    for room in sorted(quota, key=lambda room: whole[room] - quota[room])[:missing]:
        whole[room] += 1
    return {room: min(share, totals[room]) for room, share in whole.items()}
