from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import words
from reconciler.words import State, Word

NOW_S = 1000.0


def _page(**fields: Any) -> Word | None:
    return words.of_status(orjson.dumps(fields), NOW_S)


def test_a_status_page_is_read() -> None:
    """State, and what would be lost with each trainer."""
    trainers = {"trainer-3": {"uncommitted_s": 1.5}, "trainer-12": {"uncommitted_s": 0}}

    assert _page(state="work", trainers=trainers) == Word(
        State.WORK, NOW_S, uncommitted={3: 1.5, 12: 0.0}
    )


def test_the_leader_is_the_trainer_of_rank_0() -> None:
    """Others have other ranks, or none."""
    trainers = {"trainer-3": {"rank": 1}, "trainer-12": {"rank": 0}, "trainer-7": {"rank": None}}
    found = _page(state="work", trainers=trainers)

    assert found is not None
    assert found.leader == 12


@pytest.mark.parametrize("page", [{}, {"rank": None}, {"rank": False}, {"rank": "0"}, None, 0])
def test_who_leads_is_not_guessed(page: Any) -> None:
    """Trainers that do not work together have no ranks."""
    found = _page(state="work", trainers={"trainer-3": page, "somebody": {"rank": 0}})

    assert found is not None
    assert found.leader is None


@pytest.mark.parametrize("state", ["wait", "work", "stop", "", "something new"])
def test_only_two_states_are_an_end(state: str) -> None:
    """A newer master may have more words for going on."""
    found = _page(state=state)

    assert found is not None
    assert not found.final


@pytest.mark.parametrize("state", ["done", "failed"])
def test_the_end_is_told_with_its_reason(state: str) -> None:
    """In one line."""
    found = _page(state=state, reason="too many\n tasks failed")

    assert found == Word(State(state), NOW_S, "too many tasks failed")
    assert found.final


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"state": 1}', b"\xff"])
def test_what_is_no_page_says_nothing(body: bytes) -> None:
    """Whoever answers on the port."""
    assert words.of_status(body, NOW_S) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["trainer-1", "x", "7", "trainer-0x"]), _JSON))
def test_odd_trainers_are_left_out(trainers: dict[str, Any]) -> None:
    """A page of a user's pod may hold anything; seconds are never negative."""
    found = words.of_status(orjson.dumps({"state": "work", "trainers": trainers}), NOW_S)

    assert found is not None
    assert set(found.uncommitted) <= {1, 7}
    assert all(seconds >= 0 for seconds in found.uncommitted.values())


def test_more_trainers_than_a_job_may_have_are_nonsense() -> None:
    """The rest of the page still counts."""
    found = _page(state="done", trainers={str(i): {"uncommitted_s": 1} for i in range(10_001)})

    assert found == Word(State.DONE, NOW_S)


@pytest.mark.parametrize(("count", "heard"), [(10_000, 10_000), (10_001, 0)])
def test_as_many_trainers_as_a_job_may_have_are_heard(count: int, heard: int) -> None:
    """Not one more."""
    found = _page(state="work", trainers={str(i): {"uncommitted_s": 1} for i in range(count)})

    assert found is not None
    assert len(found.uncommitted) == heard


@pytest.mark.parametrize(
    ("name", "number"), [("trainer-999999999", 999_999_999), ("trainer-1000000000", None)]
)
def test_an_id_has_at_most_nine_digits(name: str, number: int | None) -> None:
    """A longer one is no id of ours."""
    found = _page(state="work", trainers={name: {"uncommitted_s": 1, "rank": 0}})

    assert found is not None
    assert found.leader == number


@pytest.mark.parametrize("seconds", [None, "7", [7], {}])
def test_seconds_that_are_no_number_are_not_said(seconds: object) -> None:
    """The trainer may still lead."""
    found = _page(state="work", trainers={"trainer-1": {"uncommitted_s": seconds, "rank": 0}})

    assert found is not None
    assert (found.uncommitted, found.leader) == ({}, 1)


def test_a_reason_has_a_sane_length() -> None:
    """It goes into a condition of the Job."""
    found = _page(state="failed", reason="x" * 600)

    assert found is not None
    assert found.reason == "x" * 500


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        ("done", Word(State.DONE, NOW_S)),
        ("failed: disk full", Word(State.FAILED, NOW_S, "disk full")),
        ("failed", Word(State.FAILED, NOW_S)),
        ("work", None),
        ("", None),
    ],
)
def test_the_last_word_is_left_in_the_config_map(outcome: str, word: Word | None) -> None:
    """For when nobody answers any more."""
    assert words.of_outcome({"outcome": outcome}, NOW_S) == word
    assert words.of_outcome({}, NOW_S) is None
