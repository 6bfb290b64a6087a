import io
import logging

import pytest
from edl.data.progress import BAR_EVERY_S, Progress, line
from edl.master.leases import Counts


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        """Always."""
        return True


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn over itself, and gone at the end."""
    now_s = 100.0
    monkeypatch.setattr("edl.clock.monotonic_s", lambda: now_s)
    screen = Terminal()
    progress = Progress("digits", 200, screen)
    progress.step(0, Counts(trained=10))
    assert screen.getvalue() == ""

    now_s += BAR_EVERY_S + 0.8
    progress.step(0, Counts(trained=100))
    assert "[###############...............]  50% digits epoch 0: 100 records" in screen.getvalue()

    progress.end(Counts(trained=200), whole=True)
    assert screen.getvalue().endswith("\r\033[K")


def test_elsewhere_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One on 30 seconds, and one at the end."""
    caplog.set_level(logging.INFO, "edl")
    now_s = 100.0
    monkeypatch.setattr("edl.clock.monotonic_s", lambda: now_s)
    progress = Progress("digits", None, io.StringIO())
    for _ in range(3):
        now_s += 15
        progress.step(1, Counts(trained=600, acknowledged=512))
    progress.end(Counts(trained=600, acknowledged=600, steps=9), whole=False)

    assert [record.message for record in caplog.records] == [
        "digits epoch 1: 600 records here (20/s), 512 acknowledged",
        "data set digits not done: this trainer trained 600 records in 9 steps, 600 acknowledged",
    ]


def test_no_time_makes_no_speed() -> None:
    """And no division by zero."""
    assert "(0/s)" in line("digits", 0, Counts(), 0.0)
