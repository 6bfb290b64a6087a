"""Shows this trainer's progress as a bar on a terminal, otherwise as a log line every 30 s."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from edl import clock
from edl.master.leases import Counts

log = logging.getLogger("edl")

BAR_EVERY_S = 0.2
LINE_EVERY_S = 30.0
_WIDTH = 30


class Progress:
    """A progress display that is cheap to update after each batch: most calls only read a clock."""

    def __init__(self, name: str, records: int | None, stream: TextIO | None = None) -> None:
        """Starts the clock.

        Args:
            name: The data set's name, which is shown.
            records: Number of records in all epochs together; None if unknown.
            stream: Stream for the bar; stderr by default.
        """
        self._name, self._records = name, records
        self._stream = sys.stderr if stream is None else stream
        self._bar = self._stream.isatty()
        self._every_s = BAR_EVERY_S if self._bar else LINE_EVERY_S
        self._begun_s = clock.monotonic_s()
        self._next_s = self._begun_s + self._every_s
        self._drawn = False

    def step(self, epoch: int, counts: Counts) -> None:
        """Shows the progress after a batch, unless it was shown a moment ago."""
        now_s = clock.monotonic_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._every_s
        if self._bar:
            self._draw(epoch, counts, now_s)
        else:
            log.info("%s", line(self._name, epoch, counts, now_s - self._begun_s))

    def end(self, counts: Counts, *, whole: bool) -> None:
        """Removes the bar and logs the totals.

        Args:
            counts: This trainer's counts.
            whole: Whether the loop ran to its end; False if this trainer leaves early.
        """
        if self._drawn:
            self._stream.write("\r\033[K")
            self._stream.flush()
        log.info(
            "data set %s %s: this trainer trained %d records in %d steps, %d acknowledged%s",
            self._name,
            "done" if whole else "not done",
            counts.trained,
            counts.steps,
            counts.acknowledged,
            f", {counts.wasted} lost" if counts.wasted else "",
        )

    def _draw(self, epoch: int, counts: Counts, now_s: float) -> None:
        text = line(self._name, epoch, counts, now_s - self._begun_s)
        if self._records:
            share = min(1.0, counts.trained / self._records)
            full = int(share * _WIDTH)
            text = f"[{'#' * full}{'.' * (_WIDTH - full)}] {share:4.0%} {text}"
        self._stream.write(f"\r{text}\033[K")
        self._stream.flush()
        self._drawn = True


def line(name: str, epoch: int, counts: Counts, took_s: float) -> str:
    """Formats progress, such as `digits epoch 1: 640 records here (320/s), 512 acknowledged`."""
    speed = counts.trained / took_s if took_s > 0 else 0.0
    return (
        f"{name} epoch {epoch}: {counts.trained} records here ({speed:.0f}/s), "
        f"{counts.acknowledged} acknowledged"
    )
