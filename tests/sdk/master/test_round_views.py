"""Answers that have only what differs from the round that the caller knows."""

from typing import Any

import pytest
from edl.errors import Unavailable
from edl.master.protocol import RoundView, parse_round


def _member(name: str) -> dict[str, str]:
    return {"trainer": name, "incarnation": f"{name}-1", "address": f"{name}:1"}


def _answer(number: int, **fields: Any) -> RoundView:
    return parse_round(
        {"round": number, "formed": False, "probe": number, "claim": False, **fields}
    )


def _names(view: RoundView) -> str:
    return "".join(member.trainer for member in view.members)


_KNOWN = _answer(3, members=[_member(name) for name in "abcd"])
_CHANGES = _answer(4, since=3, gone=[1, 3], members=[_member("e")])


def test_changes_make_the_next_round_of_the_known_one() -> None:
    """Who is gone by rank there, then those who came; the result is a whole list again."""
    later = _CHANGES.completed(_KNOWN)

    assert (later.round, _names(later), later.since) == (4, "ace", None)
    assert later.rank_of("c", "c-1") == 1


def test_the_same_round_keeps_its_members() -> None:
    """Of two answers to two threads, one comes second; and most have no members at all."""
    later = _CHANGES.completed(_KNOWN)

    assert _names(_CHANGES.completed(later)) == "ace"
    formed = _answer(4, formed=True).completed(later)
    assert (formed.formed, _names(formed)) == (True, "ace")


def test_changes_to_another_round_only_tell_the_probe() -> None:
    """And so does an older answer: the next call says what is known, and is answered at once."""
    earlier = _answer(2, members=[_member("a")])
    unknown = _CHANGES.completed(earlier)
    assert (unknown.round, _names(unknown), unknown.probe) == (2, "a", 4)
    older = earlier.completed(_KNOWN)

    assert (older.round, _names(older), older.probe) == (3, "abcd", 2)


@pytest.mark.parametrize("rank", ["1", None, True, 0.5])
def test_a_rank_that_is_none_is_an_error(rank: object) -> None:
    """By its field, as all that a master says."""
    with pytest.raises(Unavailable, match="gone"):
        _answer(4, since=3, gone=[rank], members=[])
