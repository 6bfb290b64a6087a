"""Bounds of numbers that trainers report, so that one trainer cannot exhaust them for all. Pure."""

from edl_protocol.fields import MOST

from runtime.call_checks import RefusedError

MAX_AHEAD = 1 << 24
"""By how much a number that a trainer reports may exceed the newest that this master knows, where
the master assigns the next one: it may have resumed from an older snapshot, or have none. It takes
2^29 calls to bring such a number to 2^53, beyond which it cannot be sent back."""


def check_assigned(name: str, number: int, most: int) -> None:
    """Checks that a number that a trainer reports can have been assigned by a master.

    Args:
        name: The name of the field.
        number: The reported number, 0 to 2^53.
        most: The largest number that is accepted.

    Raises:
        RefusedError: The number is larger.
    """
    if number > most:
        raise RefusedError(
            422, f"{name} is {number}: no master can have assigned more than {most}", name
        )


def capped(number: int) -> int:
    """The number, limited to 0 to 2^53: a sum of numbers in that range may exceed it."""
    return max(0, min(MOST, number))
