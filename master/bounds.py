"""Bounds of numbers that trainers tell: one trainer must not make them useless for all others. Pure."""

MOST = 1 << 53
"""Of any number: whole numbers up to here survive every JSON reader."""
MOST_ROUNDS = 1024
"""Evaluations of one data set that are kept, or are still to do."""


def capped(number: int) -> int:
    """The number, in 0 to 2^53: a sum of numbers that are in range themselves may be beyond it."""
    return max(0, min(MOST, number))
