"""Bounds of the numbers that trainers report. Pure.

Without these bounds, one trainer could use up the version, term or round numbers for all trainers.
"""

from edl_protocol.fields import MOST

from runtime.call_checks import RefusedError

MAX_AHEAD = 1 << 24
"""How far a reported number may exceed the newest one that this master knows.

The bound applies to numbers whose next value the master assigns. A reported number may be greater
than the master's newest one, because the master may have resumed from an older snapshot, or from
none. With this bound, trainers need 2^29 calls to reach 2^53, the largest number that can be sent
back."""


def check_assigned(name: str, number: int, most: int) -> None:
    """Checks that a master can have assigned the number that a trainer reports.

    Args:
        name: The name of the field.
        number: The reported number, 0 to 2^53.
        most: The largest accepted number.

    Raises:
        RefusedError: The number is larger.
    """
    if number > most:
        raise RefusedError(
            422, f"{name} is {number}: no master can have assigned more than {most}", name
        )


def capped(number: int) -> int:
    """Limits a sum of reported numbers to 0 to 2^53."""
    return max(0, min(MOST, number))
