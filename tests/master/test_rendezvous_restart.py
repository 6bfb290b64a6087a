"""Rounds after a restart of the master, and what it believes of what members claim."""

import pytest
from edl_protocol.master import RendezvousPoll

from master.bounds import MAX_AHEAD
from master.membership import SILENT_S, PastMembers
from master.rendezvous import MAX_CLAIMED, SETTLE_S, Rendezvous
from master.round import WINDOW_S
from runtime.call_checks import RefusedError
from tests.master.crowd import Crowd, meet
from tests.master.rounds import SLACK_S, trained


def test_after_a_restart_the_round_goes_on() -> None:
    """Its members report it; no other round is proclaimed."""
    crowd = trained("a", "b", "c")
    crowd.restart()
    crowd.run(6.0)

    assert (crowd.number, crowd.names, crowd.master.round.formed) == (1, ["a", "b", "c"], True)


def test_after_a_restart_members_that_died_meanwhile_are_out() -> None:
    """They are adopted first, and then dropped."""
    crowd = trained("a", "b", "c")
    crowd.kill("a")
    crowd.restart()

    assert crowd.until(2, 5.0) <= POLL_AND_SILENCE_S
    assert crowd.names == ["b", "c"]


POLL_AND_SILENCE_S = 1.0 + SILENT_S + WINDOW_S + SLACK_S


def test_after_a_restart_newcomers_wait_for_somebody_who_knows_the_round() -> None:
    """They are the youngest, although they called first."""
    crowd = trained("a", "b")
    crowd.restart()
    crowd.arrive("c")
    crowd.run(2.0)

    assert (crowd.number, crowd.names) == (2, ["a", "b", "c"])


def test_after_a_restart_where_nobody_knows_a_round_it_takes_3_s() -> None:
    """Then the members that are there begin."""
    crowd = Crowd()
    crowd.restart()
    crowd.arrive("c")

    assert crowd.until(1, 5.0) == pytest.approx(SETTLE_S, abs=SLACK_S)


def test_numbers_grow_beyond_all_that_anybody_knows() -> None:
    """Also where a member with a later number calls after a new master's first round."""
    crowd = trained("a", "b")
    for _ in range(5):
        crowd.broken("a", "b")
        crowd.run(1.0)
    late = crowd.players.pop("b")
    crowd.kill("a")
    crowd.restart()
    crowd.arrive("c")
    crowd.run(5.0)
    assert (crowd.number, crowd.names) == (1, ["c"])
    crowd.players["b"] = late
    crowd.run(2.0)

    assert late.newest_round == 7
    assert (crowd.number, crowd.names) == (7, ["c", "b"])


def test_of_two_claims_the_newer_round_counts() -> None:
    """A member may not have received it yet."""
    crowd = trained("a", "b")
    crowd.players["b"].frozen = True
    crowd.arrive("c")
    crowd.run(0.5)
    assert (crowd.players["a"].newest_round, crowd.players["b"].newest_round) == (2, 1)
    crowd.players["b"].frozen = False
    crowd.restart()
    for name in ("b", "c"):
        crowd.speak(crowd.players[name])
    assert (crowd.number, crowd.names) == (2, ["a", "b", "c"])
    crowd.run(5.0)

    assert (crowd.number, crowd.master.round.formed) == (2, True)


def test_a_claim_does_not_bring_back_whom_a_newer_process_has_replaced() -> None:
    """Nor a member that has left meanwhile."""
    crowd = trained("a", "b", "c", "d")
    crowd.restart()
    crowd.leave("c")
    old = crowd.players["b"]
    crowd.arrive("b")
    crowd.run(3.0)
    crowd.speak(old)

    assert crowd.names == ["a", "d", "b"]
    assert old.refused == "incarnation"


def test_who_left_before_any_claim_is_in_no_later_round() -> None:
    """Although it is in the round that continues."""
    crowd = trained("a", "b", "c")
    crowd.restart()
    crowd.leave("c")
    crowd.run(1.0)

    assert (crowd.number, crowd.names) == (2, ["a", "b"])


def test_of_a_claim_by_a_stranger_only_the_number_counts() -> None:
    """Only the number of the claim counts."""
    master = Rendezvous(0.0)
    claim = {"round": 9, "members": [{"trainer": "b", "incarnation": "b-1", "address": "b:1"}]}
    master.call(meet("a", seen=9, claim=claim), 0.0)
    master.tick(0.5)

    assert master.answer(meet("a"))["members"][0]["trainer"] == "a"
    assert master.round.number == 10


@pytest.mark.parametrize("name", ["seen", "at", "claim.round"])
def test_a_round_that_no_master_can_have_proclaimed_is_refused(name: str) -> None:
    """Later rounds exceed all accepted numbers, and members could not report them."""
    crowd = trained("a", "b")
    most = 1 + MAX_AHEAD
    calls = [_reporting(name, most + 1), _reporting(name, most)]
    with pytest.raises(RefusedError) as refused:
        crowd.master.call(calls[0], crowd.now_s)
    assert (refused.value.status, refused.value.field) == (422, name)
    crowd.run(2.0)
    assert (crowd.number, crowd.names) == (1, ["a", "b"])
    crowd.master.call(calls[1], crowd.now_s)
    crowd.run(2.0)

    assert crowd.number > (most if name != "claim.round" else 1)


def _reporting(name: str, number: int) -> RendezvousPoll:
    """A call of a newcomer that reports a round's number in one field."""
    seat = {"trainer": "c", "incarnation": "c-1", "address": "c:1"}
    if name == "claim.round":
        return meet("c", claim={"round": number, "members": [seat]})
    return meet("c", **{name: number})


@pytest.mark.parametrize("name", ["seen", "at", "claim.round"])
def test_a_master_that_knows_of_no_round_believes_claims_only(name: str) -> None:
    """A claim may have any number that leaves space for later ones."""
    number = MAX_CLAIMED if name == "claim.round" else MAX_AHEAD
    with pytest.raises(RefusedError) as refused:
        Rendezvous(0.0).call(_reporting(name, number + 1), 0.0)
    assert (refused.value.status, refused.value.field) == (422, name)
    master = Rendezvous(0.0, settles=True)
    claim = _reporting("claim.round", MAX_CLAIMED).claim
    master.call(meet("c", seen=MAX_CLAIMED, at=MAX_CLAIMED, claim=claim), 0.0)
    assert master.round.number == MAX_CLAIMED


def test_of_processes_of_the_past_only_the_newest_are_remembered() -> None:
    """A master serves for weeks."""
    past = PastMembers()
    for number in range(2_000):
        past.left["a", str(number)] = None

    assert past.has_ended(("a", "1999"))
    assert not past.has_ended(("a", "0"))
    assert sum(past.has_ended(("a", str(number))) for number in range(2_000)) == 1024
