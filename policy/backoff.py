"""Exponential back-off: the pause before the next attempt doubles up to a limit. Pure."""

_MAX_DOUBLINGS = 32


def pause_s(first_s: float, max_s: float, failures: int) -> float:
    """Returns the pause after a number of failures in a row, in seconds.

    The pause is 0 without failures, `first_s` after the first failure, and at most `max_s`.
    """
    if failures < 1:
        return 0.0
    return min(max_s, first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
