from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.masters import reports as master_reports
from reconciler.masters.reports import MasterReport, ReportedState

NOW_S = 1000.0


def _page(**fields: Any) -> MasterReport | None:
    return master_reports.parse_status_page(orjson.dumps(fields), NOW_S)


def test_a_status_page_is_read() -> None:
    """State, and what would be lost with each trainer."""
    trainers = {"trainer-3": {"uncommitted_s": 1.5}, "trainer-12": {"uncommitted_s": 0}}

    assert _page(state="work", trainers=trainers) == MasterReport(
        ReportedState.WORK, NOW_S, uncommitted={3: 1.5, 12: 0.0}
    )


def test_the_leader_is_the_trainer_of_rank_0() -> None:
    """Others have other ranks, or none."""
    trainers = {"trainer-3": {"rank": 1}, "trainer-12": {"rank": 0}, "trainer-7": {"rank": None}}
    report = _page(state="work", trainers=trainers)

    assert report is not None
    assert report.leader == 12


@pytest.mark.parametrize("page", [{}, {"rank": None}, {"rank": False}, {"rank": "0"}, None, 0])
def test_who_leads_is_not_guessed(page: Any) -> None:
    """Trainers that do not work together have no ranks."""
    report = _page(state="work", trainers={"trainer-3": page, "somebody": {"rank": 0}})

    assert report is not None
    assert report.leader is None


@pytest.mark.parametrize("state", ["wait", "work", "stop", "", "something new"])
def test_only_two_states_are_an_end(state: str) -> None:
    """A newer master may have further states for a running job."""
    report = _page(state=state)

    assert report is not None
    assert not report.final


@pytest.mark.parametrize("state", ["done", "failed"])
def test_the_end_is_told_with_its_reason(state: str) -> None:
    """In one line."""
    report = _page(state=state, reason="too many\n tasks failed")

    assert report == MasterReport(ReportedState(state), NOW_S, "too many tasks failed")
    assert report.final


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"state": 1}', b"\xff"])
def test_what_is_no_page_says_nothing(body: bytes) -> None:
    """Whoever answers on the port."""
    assert master_reports.parse_status_page(body, NOW_S) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["trainer-1", "x", "7", "trainer-0x"]), _JSON))
def test_odd_trainers_are_left_out(trainers: dict[str, Any]) -> None:
    """A page of a user's pod may hold anything; seconds are never negative."""
    report = master_reports.parse_status_page(
        orjson.dumps({"state": "work", "trainers": trainers}), NOW_S
    )

    assert report is not None
    assert set(report.uncommitted) <= {1, 7}
    assert all(seconds >= 0 for seconds in report.uncommitted.values())


def test_more_trainers_than_a_job_may_have_are_nonsense() -> None:
    """The rest of the page still counts."""
    report = _page(state="done", trainers={str(i): {"uncommitted_s": 1} for i in range(10_001)})

    assert report == MasterReport(ReportedState.DONE, NOW_S)


@pytest.mark.parametrize(("count", "expected"), [(10_000, 10_000), (10_001, 0)])
def test_as_many_trainers_as_a_job_may_have_are_heard(count: int, expected: int) -> None:
    """Not one more."""
    report = _page(state="work", trainers={str(i): {"uncommitted_s": 1} for i in range(count)})

    assert report is not None
    assert len(report.uncommitted) == expected


@pytest.mark.parametrize(
    ("name", "number"), [("trainer-999999999", 999_999_999), ("trainer-1000000000", None)]
)
def test_an_id_has_at_most_nine_digits(name: str, number: int | None) -> None:
    """A longer one cannot be an id of EDL."""
    report = _page(state="work", trainers={name: {"uncommitted_s": 1, "rank": 0}})

    assert report is not None
    assert report.leader == number


def test_more_than_a_month_of_work_is_no_trainers() -> None:
    """Sums over all jobs would be without a value: metrics, and what a burst of services has cost."""
    report = _page(state="work", trainers={"trainer-1": {"uncommitted_s": 1.7e308}})

    assert report is not None
    assert report.uncommitted == {1: 30 * 86_400.0}


@pytest.mark.parametrize("seconds", [None, "7", [7], {}])
def test_seconds_that_are_no_number_are_not_said(seconds: object) -> None:
    """The trainer may still lead."""
    report = _page(state="work", trainers={"trainer-1": {"uncommitted_s": seconds, "rank": 0}})

    assert report is not None
    assert (report.uncommitted, report.leader) == ({}, 1)


def test_a_reason_has_a_sane_length() -> None:
    """It goes into a condition of the Job."""
    report = _page(state="failed", reason="x" * 600)

    assert report is not None
    assert report.reason == "x" * 500


@pytest.mark.parametrize(
    ("outcome", "report"),
    [
        ("done", MasterReport(ReportedState.DONE, NOW_S)),
        ("failed: disk full", MasterReport(ReportedState.FAILED, NOW_S, "disk full")),
        ("failed", MasterReport(ReportedState.FAILED, NOW_S)),
        ("work", None),
        ("", None),
    ],
)
def test_the_last_word_is_left_in_the_config_map(outcome: str, report: MasterReport | None) -> None:
    """For when nobody answers any more."""
    assert master_reports.parse_outcome({"outcome": outcome}, NOW_S) == report
    assert master_reports.parse_outcome({}, NOW_S) is None
