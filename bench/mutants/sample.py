"""Samples the mutants to try: repeatable by seed, and enough of each room."""

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def shares(totals: Mapping[str, int], count: int, least: int) -> dict[str, int]:
    """The sample size of each room.

    Proportional to the number of its mutants, but at least `least`, or all of them. So small rooms
    are tested more thoroughly, and the sum may exceed a small `count`.
    """
    counts = {room: min(least, total) for room, total in totals.items()}
    large = dict(totals)
    while large:
        remaining = count - sum(counts[room] for room in totals if room not in large)
        quota = {room: remaining * total / sum(large.values()) for room, total in large.items()}
        small = [room for room in large if quota[room] <= counts[room]]
        if not small:
            return counts | _rounded(quota, remaining, totals)
        for room in small:
            del large[room]
    return counts


def pick(candidates: Sequence[T], count: int, seed: int, room: str) -> list[T]:
    """Picks `count` candidates in the seed's order; a larger count extends the selection."""
    order = random.Random(f"{seed} {room}").sample(range(len(candidates)), len(candidates))  # noqa: S311
    return [candidates[index] for index in sorted(order[:count])]


def _rounded(quota: Mapping[str, float], total: int, totals: Mapping[str, int]) -> dict[str, int]:
    """Rounds to whole numbers with the same sum, by the largest remainders."""
    whole = {room: int(share) for room, share in quota.items()}
    missing = total - sum(whole.values())
    for room in sorted(quota, key=lambda room: whole[room] - quota[room])[:missing]:
        whole[room] += 1
    return {room: min(share, totals[room]) for room, share in whole.items()}
