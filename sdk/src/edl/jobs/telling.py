"""What a trainer prints: a line now and then while it trains, and one that says what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edl import clock

STEP = "step "
"""How lines about progress begin."""
RESULT = "edl: "
"""How the last line begins."""
_LEAST_S, _MOST_S = 1.0, 30.0
_SHARE = 0.05
"""Of the time so far, from one line to the next: long jobs have short logs."""


class Pace:
    """When the next line is due, and what happened since the one before."""

    def __init__(self, now_s: Callable[[], float] = clock.monotonic_s) -> None:
        self._now_s = now_s
        self._begun_s: float | None = None
        self._last_s = self._exchange_s = 0.0
        self._records = 0

    def note(self, records: int, exchange_s: float = 0.0) -> str | None:
        """A step was made.

        Returns:
            How fast it goes, where a line is due; of the first step nothing is known but that it
            was made.
        """
        now_s = self._now_s()
        if self._begun_s is None:
            self._begun_s = self._last_s = now_s
            return ""
        self._records += records
        self._exchange_s += exchange_s
        took_s = now_s - self._last_s
        if took_s < min(_MOST_S, max(_LEAST_S, _SHARE * (now_s - self._begun_s))):
            return None
        found = speed(self._records, took_s, self._exchange_s)
        self._last_s, self._records, self._exchange_s = now_s, 0, 0.0
        return found


def speed(records: int, took_s: float, exchange_s: float) -> str:
    """Such as `1280 records/s, 12% of the time in exchange`."""
    found = f"{records / took_s:.0f} records/s"
    return f"{found}, {exchange_s / took_s:.0%} of the time in exchange" if exchange_s else found


def line(head: str, *parts: str) -> None:
    """Prints what is not empty."""
    print(f"{head}: {'; '.join(part for part in parts if part)}", flush=True)


def numbers(metrics: Mapping[str, float]) -> str:
    """Metrics in a line, the loss first: `loss 0.1234, accuracy 0.962`."""
    names = sorted(metrics, key=lambda name: (name != "loss", name))
    return ", ".join(f"{name} {metrics[name]:.4g}" for name in names) or "no metrics"


def several(count: int, what: str) -> str:
    """Such as `1 member` or `3 members`."""
    return f"{count} {what}{'' if count == 1 else 's'}"
