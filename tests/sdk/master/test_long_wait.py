"""When a member reports that its program waits for others."""

import pytest
from edl.master.long_wait import SUSPICIOUS_S, LongWait
from edl.master.protocol import RoundView, parse_round


def _view(probe: int = 0, suspicious_s: float | None = None) -> RoundView:
    body = {"round": 1, "formed": True, "probe": probe, "suspicious_s": suspicious_s}
    return parse_round(body)


def test_a_wait_is_reported_once_when_it_is_long() -> None:
    """The next one again; without a wait nothing is due."""
    wait = LongWait()
    assert (wait.due_in_s(7.0), wait.length_s(7.0)) == (None, 0.0)
    wait.since_s = 7.0
    assert wait.due_in_s(7.1) == pytest.approx(SUSPICIOUS_S - 0.1)
    assert wait.due_in_s(9.0) == 0.0
    wait.record_report(7.0, SUSPICIOUS_S - 0.1)
    assert wait.due_in_s(9.0) == 0.0
    wait.record_report(7.0, wait.length_s(9.0))
    assert wait.due_in_s(9.0) is None
    wait.since_s = 10.0

    assert wait.due_in_s(10.0) == pytest.approx(SUSPICIOUS_S)


def test_the_master_says_how_long_it_must_be() -> None:
    """Members of a large round would all report at one moment; an older master says nothing."""
    wait = LongWait()
    wait.since_s = 7.0
    wait.record_answer(_view(suspicious_s=3.5), _view())
    assert wait.due_in_s(8.0) == pytest.approx(2.5)
    wait.record_report(7.0, 1.0)
    assert wait.due_in_s(8.0) == pytest.approx(2.5)
    wait.record_answer(_view(), _view())

    assert wait.due_in_s(8.0) == 0.0


def test_who_is_probed_while_it_waits_need_not_report_that() -> None:
    """A probe is in progress; the answer to it has the wait."""
    wait = LongWait()
    wait.record_answer(_view(probe=1), _view())
    wait.since_s = 7.0
    assert wait.due_in_s(8.0) == 0.0
    wait.record_answer(_view(probe=1), _view(probe=1))
    assert wait.due_in_s(8.0) == 0.0
    wait.record_answer(_view(probe=2), _view(probe=1))
    assert wait.due_in_s(8.0) is None
    wait.since_s = 9.0

    assert wait.due_in_s(10.0) == 0.0
