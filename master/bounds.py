"""Bounds of numbers that trainers tell: one trainer must not make them useless for all others. Pure."""

from master.errors import RefusedError

MOST = 1 << 53
"""Of any number: whole numbers up to here survive every JSON reader."""
MOST_AHEAD = 1 << 24
"""By how much a number that a trainer knows may be beyond the newest that this master knows, where
the master gives out the next one: it went back to an older snapshot, or has none. It takes 2^29
calls to bring such a number to 2^53, from where on nobody can send it back."""
MOST_ROUNDS = 1024
"""Evaluations of one data set that are kept, or are still to do."""


def check_given(name: str, number: int, most: int) -> None:
    """A number that a trainer tells must be one that a master can have given out.

    Args:
        name: Of the field.
        number: What the trainer tells, 0 to 2^53.
        most: The greatest that is believed.

    Raises:
        RefusedError: It is greater.
    """
    if number > most:
        raise RefusedError(
            422, f"{name} is {number}: no master can have given out more than {most}", name
        )


def capped(number: int) -> int:
    """The number, in 0 to 2^53: a sum of numbers that are in range themselves may be beyond it."""
    return max(0, min(MOST, number))
