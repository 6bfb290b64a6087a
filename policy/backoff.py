"""Exponential back-off: the pause before the next try doubles up to a limit."""

_MAX_DOUBLINGS = 32


def pause_s(first_s: float, max_s: float, failures: int) -> float:
    """The pause after `failures` in a row: 0 without any, `first_s` after one, `max_s` at most."""
    if failures < 1:
        return 0.0
    return min(max_s, first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
