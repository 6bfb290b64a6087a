"""The lines that a trainer prints: progress at intervals, and the result at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edl import clock

STEP = "step "
"""Prefix of progress lines."""
RESULT = "edl: "
"""Prefix of the result line."""
_MIN_S, _MAX_S = 1.0, 30.0
_SHARE = 0.05
"""Interval between lines as a share of the elapsed time, which keeps the logs of long jobs short."""


class ReportInterval:
    """Decides when the next progress line is due, and measures the speed since the last one."""

    def __init__(self, now_s: Callable[[], float] = clock.monotonic_s) -> None:
        self._now_s = now_s
        self._started_s: float | None = None
        self._last_s = self._exchange_s = 0.0
        self._records = 0

    def note(self, records: int, exchange_s: float = 0.0) -> str | None:
        """Counts a step.

        Args:
            records: Records of the step.
            exchange_s: Seconds of the step spent in exchange.

        Returns:
            The speed as text if a line is due, "" for the first step, otherwise None.
        """
        now_s = self._now_s()
        if self._started_s is None:
            self._started_s = self._last_s = now_s
            return ""
        self._records += records
        self._exchange_s += exchange_s
        took_s = now_s - self._last_s
        if took_s < min(_MAX_S, max(_MIN_S, _SHARE * (now_s - self._started_s))):
            return None
        speed_text = format_speed(self._records, took_s, self._exchange_s)
        self._last_s, self._records, self._exchange_s = now_s, 0, 0.0
        return speed_text


def format_speed(records: int, took_s: float, exchange_s: float) -> str:
    """Formats a speed, such as `1280 records/s, 12% of the time in exchange`."""
    records_text = f"{records / took_s:.0f} records/s"
    return (
        f"{records_text}, {exchange_s / took_s:.0%} of the time in exchange"
        if exchange_s
        else records_text
    )


def print_line(head: str, *parts: str) -> None:
    """Prints the head and the parts that are not empty."""
    print(f"{head}: {'; '.join(part for part in parts if part)}", flush=True)


def format_metrics(metrics: Mapping[str, float]) -> str:
    """Formats metrics, the loss first: `loss 0.1234, accuracy 0.962`."""
    names = sorted(metrics, key=lambda name: (name != "loss", name))
    return ", ".join(f"{name} {metrics[name]:.4g}" for name in names) or "no metrics"


def format_count(count: int, noun: str) -> str:
    """Formats a count, such as `1 member` or `3 members`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_times(count: int) -> str:
    """Formats how often something happened: `once`, or `3 times`."""
    return "once" if count == 1 else f"{count} times"
