"""What strangers can have written to a log."""

import logging

import pytest
from edl import clock
from edl.bounded_warnings import LINES, PERIOD_S, BoundedWarnings


def test_lines_are_bounded_and_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten lines of a thousand in one minute; the next minute's first line says how many were left out."""
    now_s = [5.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s[0])
    warnings = BoundedWarnings(logging.getLogger("edl"))
    for number in range(1_000):
        warnings.warn("stranger %d", number)
    now_s[0] += PERIOD_S
    warnings.warn("stranger %d", 1_000)

    assert [record.getMessage() for record in caplog.records] == [
        *(f"stranger {number}" for number in range(LINES)),
        "990 more lines like the next were left out",
        "stranger 1000",
    ]
