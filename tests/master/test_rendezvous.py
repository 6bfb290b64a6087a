"""Rounds of those who train together: when they come, who is in them, and who is not any more."""

from typing import Any

import pytest

from master.attendance import HUNG_UP_S, PROBE_S, SILENT_S, Remembered
from master.bounds import MOST_AHEAD
from master.errors import RefusedError
from master.rendezvous import (
    FORMING_S,
    MOST_CLAIMED,
    MOST_WINDOW_S,
    SETTLE_S,
    SHORT_WINDOW_S,
    WINDOW_S,
    Rendezvous,
)
from tests.master.crowd import STEP_S, Crowd, meet

Json = dict[str, Any]
_SLACK_S = 2 * STEP_S + 1e-6


def trained(*trainers: str, **settings: float) -> Crowd:
    """A crowd whose first round has formed."""
    crowd = Crowd(**settings)
    crowd.arrive(*trainers)
    crowd.run(0.5)
    assert crowd.master.round.formed
    assert crowd.names == list(trainers)
    return crowd


def test_those_who_arrive_together_make_one_round() -> None:
    """By age; it has formed when all are ready."""
    crowd = Crowd()
    for trainer in ("b", "a", "c"):
        crowd.arrive(trainer)
        crowd.run(0.1, ready=False)
    crowd.run(0.3, ready=False)

    assert (crowd.number, crowd.names, crowd.master.round.formed) == (1, ["b", "a", "c"], False)
    crowd.run(STEP_S)
    assert crowd.master.report() == {
        "round": 1,
        "formed": True,
        "members": [{"trainer": one, "rank": i} for i, one in enumerate(["b", "a", "c"])],
    }
    assert all(one.formed for one in crowd.players.values())
    assert [(event, told) for _, event, told in crowd.news if event.startswith("round ")] == [
        ("round proclaimed", {"round": 1, "trainers": ["b", "a", "c"]}),
        ("round has formed", {"round": 1}),
    ]


def test_a_round_comes_soon_after_the_last_change_and_never_long_after_the_first() -> None:
    """0.2 s and 1 s, however many arrive."""
    crowd = trained("a")
    crowd.arrive("b")
    assert crowd.until(2, 1.0) == pytest.approx(WINDOW_S, abs=_SLACK_S)
    crowd.run(0.5)
    begun_s = crowd.now_s
    for number in range(30):
        crowd.arrive(f"c{number}")
        crowd.run(0.1)
        if crowd.number > 2:
            break

    assert crowd.now_s - begun_s == pytest.approx(MOST_WINDOW_S, abs=0.1 + _SLACK_S)
    assert 10 <= len(crowd.names) <= 13


def test_while_a_round_is_forming_there_is_no_other() -> None:
    """Newcomers wait for it."""
    crowd = trained("a", "b")
    crowd.arrive("c")
    crowd.run(1.0, ready=False)
    crowd.arrive("d")
    crowd.run(5.0, ready=False)
    assert (crowd.number, crowd.names) == (2, ["a", "b", "c"])
    crowd.run(0.5)

    assert (crowd.number, crowd.names) == (3, ["a", "b", "c", "d"])


@pytest.mark.parametrize("how", ["dies", "leaves", "breaks"])
def test_a_forming_round_that_became_impossible_is_followed_at_once(how: str) -> None:
    """Without waiting until it has formed."""
    crowd = trained("a", "b")
    crowd.arrive("c")
    crowd.run(0.5, ready=False)
    if how == "dies":
        crowd.kill("b")
    elif how == "leaves":
        crowd.leave("b")
    else:
        crowd.broken("b")
    crowd.run(1.0, ready=False)

    assert crowd.number == 3
    assert crowd.names == (["a", "b", "c"] if how == "breaks" else ["a", "c"])


def test_who_leaves_is_in_no_later_round_though_it_calls_on() -> None:
    """The present round is not over for that."""
    crowd = trained("a", "b")
    crowd.leave("a")

    assert crowd.master.void == 0
    assert crowd.until(2, 1.0) == pytest.approx(WINDOW_S, abs=_SLACK_S)
    crowd.run(5.0)
    assert (crowd.number, crowd.names) == (2, ["b"])
    assert crowd.players["a"].seen == 2
    assert not crowd.players["a"].dropped


def test_a_call_that_comes_after_the_leave_changes_nothing() -> None:
    """It may have been on its way for longer."""
    crowd = trained("a", "b")
    late = crowd.players["a"].call(crowd.now_s)
    crowd.leave("a")
    crowd.players.pop("a")
    crowd.master.call(late, crowd.now_s)
    crowd.run(2.0)

    assert (crowd.number, crowd.names) == (2, ["b"])


def test_a_killed_member_is_out_soon() -> None:
    """Its connection is cut, and the others have nothing else to wait for."""
    crowd = trained("a", "b", "c")
    crowd.kill("b")
    crowd.broken("a", "c")
    took_s = crowd.until(2, 2.0)

    assert took_s == pytest.approx(HUNG_UP_S + SHORT_WINDOW_S, abs=_SLACK_S)
    assert crowd.names == ["a", "c"]
    assert crowd.master.void == 1


def test_a_member_that_calls_again_after_its_connection_was_cut_stays() -> None:
    """It was the network."""
    crowd = trained("a", "b")
    crowd.master.hung_up(*crowd.players["b"].who, crowd.now_s)
    crowd.run(HUNG_UP_S / 2)
    crowd.speak(crowd.players["b"])
    crowd.run(2.0)

    assert crowd.number == 1


def test_only_a_call_that_knows_of_the_probe_answers_it() -> None:
    """Another may have been on its way before its process was frozen."""
    crowd = trained("a", "b")
    late = crowd.players["b"].call(crowd.now_s)
    crowd.players["b"].frozen = True
    crowd.broken("a")
    crowd.run(0.5)
    crowd.master.call(late, crowd.now_s)

    assert crowd.until(2, 2.0) <= PROBE_S - 0.5 + WINDOW_S + _SLACK_S
    assert crowd.names == ["a"]


def test_a_member_whose_node_is_gone_is_out_after_a_probe() -> None:
    """Nothing says that it is gone, but that it does not answer."""
    crowd = trained("a", "b", "c")
    crowd.kill("b", heard=False)
    crowd.broken("a", "c")

    assert crowd.until(2, 2.0) == pytest.approx(PROBE_S + SHORT_WINDOW_S, abs=_SLACK_S)
    assert crowd.names == ["a", "c"]


def test_a_frozen_member_is_out_after_a_probe_when_others_wait() -> None:
    """Though nobody says broken."""
    crowd = trained("a", "b", "c")
    crowd.players["b"].frozen = True
    for name in ("a", "c"):
        crowd.players[name].waits_since_s = crowd.now_s
    crowd.run(0.75)
    crowd.speak(crowd.players["a"])
    took_s = 0.75 + crowd.until(2, 3.0)

    assert took_s == pytest.approx(0.75 + PROBE_S + SHORT_WINDOW_S, abs=_SLACK_S)
    assert crowd.names == ["a", "c"]


def test_a_frozen_member_is_out_even_if_nobody_waits() -> None:
    """By its silence."""
    crowd = trained("a", "b")
    crowd.players["b"].frozen = True

    assert crowd.until(2, 5.0) <= SILENT_S + WINDOW_S + _SLACK_S
    assert crowd.names == ["a"]


def test_who_polls_for_long_may_be_silent_for_as_long() -> None:
    """The limit follows from the call."""
    master = Rendezvous(0.0)
    master.call(meet(wait_s=20.0), 0.0)
    master.tick(21.9)
    assert len(master.report()["members"]) == 1
    assert master.next_s() == 22.0
    master.tick(22.0)

    assert master.news[-1][1] == {"trainer": "a", "why": "it was not heard for 22.0 s"}


def test_broken_with_nobody_gone_is_a_new_number_for_the_same_members() -> None:
    """Within 0.2 s, and at once when all say so."""
    crowd = trained("a", "b")
    crowd.broken("a")
    assert crowd.until(2, 1.0) == pytest.approx(WINDOW_S, abs=_SLACK_S)
    crowd.run(1.0)
    crowd.broken("a", "b")

    assert crowd.until(3, 1.0) == pytest.approx(SHORT_WINDOW_S, abs=_SLACK_S)
    assert crowd.names == ["a", "b"]
    assert (crowd.number, crowd.master.void) == (3, 2)


def test_a_newcomer_is_waited_for_even_if_all_are_broken() -> None:
    """One round for both."""
    crowd = trained("a", "b")
    crowd.broken("a", "b")
    crowd.arrive("c")

    assert crowd.until(2, 1.0) == pytest.approx(WINDOW_S, abs=_SLACK_S)
    assert crowd.names == ["a", "b", "c"]


def test_a_member_that_dies_after_it_has_answered_a_probe_is_found_by_the_next() -> None:
    """What was suspected meanwhile is looked after then."""
    crowd = trained("a", "b", "c", "d")
    crowd.kill("b", heard=False)
    crowd.broken("a")
    crowd.run(0.2)
    crowd.kill("c", heard=False)
    crowd.run(PROBE_S - 0.2)
    assert crowd.until(2, 0.5) < 0.5
    crowd.broken("a", "d")
    crowd.until(3, 2.0)

    assert crowd.names == ["a", "d"]


def test_one_that_was_dropped_and_calls_again_was_not_dead() -> None:
    """It is the last now, and its limits are twice as long; one line says so."""
    crowd = trained("a", "b")
    crowd.players["a"].frozen = True
    crowd.run(5.0)
    assert crowd.names == ["b"]
    crowd.players["a"].frozen = False
    crowd.turn()
    assert crowd.players["a"].dropped
    crowd.run(1.0)
    assert crowd.names == ["b", "a"]
    assert not crowd.players["a"].dropped
    crowd.players["a"].frozen = True
    took_s = crowd.until(crowd.number + 1, 10.0)

    assert 2 * SILENT_S - 1.0 <= took_s <= 2 * SILENT_S + WINDOW_S + _SLACK_S
    back = [told for _, event, told in crowd.news if "back" in event]
    assert back == [{"trainer": "a", "limits_times": 2.0}]


def test_limits_grow_to_half_a_minute_at_most() -> None:
    """However often it was dropped."""
    crowd = trained("a", "b")
    for _ in range(8):
        crowd.players["a"].frozen = True
        crowd.run(32.0)
        assert crowd.names == ["b"]
        crowd.players["a"].frozen = False
        crowd.run(1.0)
        assert crowd.names == ["b", "a"]


def test_a_new_process_of_a_trainer_takes_its_place_at_the_end() -> None:
    """The old one is refused from then on."""
    crowd = trained("a", "b")
    old = crowd.players["a"]
    crowd.arrive("a")
    crowd.run(1.0)
    crowd.speak(old)

    assert crowd.names == ["b", "a"]
    assert crowd.master.round.seats[1].incarnation == crowd.players["a"].incarnation
    assert old.refused == "incarnation"


def test_waiting_alone_probes_now_and_then() -> None:
    """At most every 2 s: long steps are nothing bad."""
    crowd = trained("a", "b")
    crowd.players["a"].waits_since_s = crowd.now_s
    crowd.run(10.0)

    assert 3 <= crowd.players["b"].probe <= 5
    assert crowd.number == 1


def test_who_lets_others_wait_too_long_is_out_until_its_program_moves() -> None:
    """Its thread for calls lives on, which proves nothing."""
    crowd = trained("a", "b", "c", stuck_s=20.0)
    crowd.players["b"].halted = True
    for name in ("a", "c"):
        crowd.players[name].waits_since_s = crowd.now_s
    crowd.run(19.0)
    assert crowd.number == 1
    crowd.run(3.0)
    assert (crowd.number, crowd.names) == (2, ["a", "c"])
    crowd.run(30.0)
    assert (crowd.number, crowd.players["b"].dropped) == (2, True)
    crowd.players["b"].halted = False
    crowd.run(1.0)

    assert (crowd.number, crowd.names) == (3, ["a", "c", "b"])


@pytest.mark.parametrize("grows", [False, True])
def test_who_is_busy_may_let_others_wait_and_has_all_its_time_after_that(*, grows: bool) -> None:
    """In a round that has formed, and in one that waits for it."""
    crowd = trained("a", "b", stuck_s=FORMING_S)
    crowd.players["b"].busy = True
    crowd.players["a"].waits_since_s = crowd.now_s
    if grows:
        crowd.arrive("c")
    crowd.run(3 * FORMING_S)
    crowd.players["b"].busy, crowd.players["b"].halted = False, True
    crowd.run(FORMING_S - 2.0)
    assert crowd.names == (["a", "b", "c"] if grows else ["a", "b"])
    crowd.run(5.0)

    assert crowd.names == (["a", "c"] if grows else ["a"])


def test_members_that_all_wait_for_each_other_get_another_round() -> None:
    """There is nobody to drop."""
    crowd = trained("a", "b", stuck_s=10.0)
    for one in crowd.players.values():
        one.waits_since_s = crowd.now_s
    crowd.run(12.0)

    assert (crowd.number, crowd.names) == (2, ["a", "b"])
    assert crowd.master.round.formed


def test_who_does_not_reach_a_round_is_out_after_a_minute() -> None:
    """The others must not wait for it for ever."""
    crowd = trained("a", "b")
    crowd.players["b"].halted = True
    crowd.arrive("c")
    crowd.run(FORMING_S - 1)
    assert (crowd.number, crowd.names) == (2, ["a", "b", "c"])
    crowd.run(3.0)
    assert (crowd.number, crowd.names) == (3, ["a", "c"])
    crowd.run(70.0)

    assert crowd.number == 3


def test_who_is_never_ready_is_out_when_somebody_else_waits_for_a_round() -> None:
    """Not before: loading may take its time."""
    crowd = Crowd(stuck_s=90.0)
    crowd.arrive("a")
    crowd.run(300.0, ready=False)
    assert (crowd.number, crowd.names) == (1, ["a"])
    crowd.players["a"].halted = True
    crowd.arrive("b")
    crowd.run(1.0)
    assert (crowd.number, crowd.names) == (2, ["b"])


def test_another_program_is_refused_by_the_entry_that_differs() -> None:
    """Both values are said, and what to do."""
    master = Rendezvous(0.0)
    master.call(meet("a", code={"model": "1", "batch": "32"}), 0.0)
    master.call(meet("b", code={"batch": "32", "model": "1"}), 0.0)
    with pytest.raises(RefusedError, match=r"code\.model is '2' with c, but '1' with a") as caught:
        master.call(meet("c", code={"model": "2", "batch": "32"}), 0.1)
    with pytest.raises(RefusedError, match=r"code\.batch is None"):
        master.call(meet("c", code={"model": "1"}), 0.1)

    assert (caught.value.status, caught.value.named) == (409, "code.model")
    assert "same program" in str(caught.value)
    master.tick(0.3)
    assert [one["trainer"] for one in master.report()["members"]] == ["a", "b"]


def test_another_program_may_begin_when_nobody_is_left() -> None:
    """Also where only the process before it is left, which cannot be alive."""
    master = Rendezvous(0.0)
    master.call(meet("a", code={"model": "1"}), 0.0)
    master.call(meet("a", incarnation="a-2", code={"model": "2"}), 0.1)
    master.leave("a", "a-2", 0.2)
    master.call(meet("b", code={"model": "3"}), 0.3)
    master.tick(0.6)

    assert [one["trainer"] for one in master.report()["members"]] == ["b"]


def test_after_a_restart_the_round_goes_on() -> None:
    """Its members tell it; there is no other round for that."""
    crowd = trained("a", "b", "c")
    crowd.restart()
    crowd.run(6.0)

    assert (crowd.number, crowd.names, crowd.master.round.formed) == (1, ["a", "b", "c"], True)


def test_after_a_restart_members_that_died_meanwhile_are_out() -> None:
    """They are taken over first, and missed."""
    crowd = trained("a", "b", "c")
    crowd.kill("a")
    crowd.restart()

    assert crowd.until(2, 5.0) <= POLL_AND_SILENCE_S
    assert crowd.names == ["b", "c"]


POLL_AND_SILENCE_S = 1.0 + SILENT_S + WINDOW_S + _SLACK_S


def test_after_a_restart_newcomers_wait_for_somebody_who_knows_the_round() -> None:
    """They are the youngest, though they were heard first."""
    crowd = trained("a", "b")
    crowd.restart()
    crowd.arrive("c")
    crowd.run(2.0)

    assert (crowd.number, crowd.names) == (2, ["a", "b", "c"])


def test_after_a_restart_where_nobody_knows_a_round_it_takes_3_s() -> None:
    """Then those who are there begin."""
    crowd = Crowd()
    crowd.restart()
    crowd.arrive("c")

    assert crowd.until(1, 5.0) == pytest.approx(SETTLE_S, abs=_SLACK_S)


def test_numbers_grow_beyond_all_that_anybody_knows() -> None:
    """Also where the one who knows comes after the first round of a new master."""
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

    assert late.seen == 7
    assert (crowd.number, crowd.names) == (7, ["c", "b"])


def test_of_two_claims_the_newer_round_counts() -> None:
    """Somebody may not have heard of it yet."""
    crowd = trained("a", "b")
    crowd.players["b"].frozen = True
    crowd.arrive("c")
    crowd.run(0.5)
    assert (crowd.players["a"].seen, crowd.players["b"].seen) == (2, 1)
    crowd.players["b"].frozen = False
    crowd.restart()
    for name in ("b", "c"):
        crowd.speak(crowd.players[name])
    assert (crowd.number, crowd.names) == (2, ["a", "b", "c"])
    crowd.run(5.0)

    assert (crowd.number, crowd.master.round.formed) == (2, True)


def test_a_claim_does_not_bring_back_whom_a_newer_process_has_replaced() -> None:
    """Or who has left meanwhile."""
    crowd = trained("a", "b", "c", "d")
    crowd.restart()
    crowd.leave("c")
    old = crowd.players["b"]
    crowd.arrive("b")
    crowd.run(3.0)
    crowd.speak(old)

    assert crowd.names == ["a", "d", "b"]
    assert old.refused == "incarnation"


def test_who_left_before_anybody_told_of_it_is_in_no_later_round() -> None:
    """Though the round that goes on has it."""
    crowd = trained("a", "b", "c")
    crowd.restart()
    crowd.leave("c")
    crowd.run(1.0)

    assert (crowd.number, crowd.names) == (2, ["a", "b"])


def test_a_claim_of_somebody_who_is_not_in_it_says_nothing_but_a_number() -> None:
    """It cannot know more."""
    master = Rendezvous(0.0)
    claim = {"round": 9, "members": [{"trainer": "b", "incarnation": "b-1", "address": "b:1"}]}
    master.call(meet("a", seen=9, claim=claim), 0.0)
    master.tick(0.5)

    assert master.answer(meet("a"))["members"][0]["trainer"] == "a"
    assert master.round.number == 10


@pytest.mark.parametrize("name", ["seen", "at", "claim.round"])
def test_a_round_that_no_master_can_have_proclaimed_is_refused(name: str) -> None:
    """Later rounds are beyond all that are believed: nobody could say their number any more."""
    crowd = trained("a", "b")
    most = 1 + MOST_AHEAD
    calls = [_telling(name, most + 1), _telling(name, most)]
    with pytest.raises(RefusedError) as refused:
        crowd.master.call(calls[0], crowd.now_s)
    assert (refused.value.status, refused.value.named) == (422, name)
    crowd.run(2.0)
    assert (crowd.number, crowd.names) == (1, ["a", "b"])
    crowd.master.call(calls[1], crowd.now_s)
    crowd.run(2.0)

    assert crowd.number > (most if name != "claim.round" else 1)


def _telling(name: str, number: int) -> Json:
    """A call of a newcomer that tells a round's number in one field."""
    seat = {"trainer": "c", "incarnation": "c-1", "address": "c:1"}
    if name == "claim.round":
        return meet("c", claim={"round": number, "members": [seat]})
    return meet("c", **{name: number})


@pytest.mark.parametrize("name", ["seen", "at", "claim.round"])
def test_a_master_that_knows_of_no_round_believes_claims_only(name: str) -> None:
    """Of members that are in a round: theirs may have any number that leaves place for later ones."""
    number = MOST_CLAIMED if name == "claim.round" else MOST_AHEAD
    with pytest.raises(RefusedError) as refused:
        Rendezvous(0.0).call(_telling(name, number + 1), 0.0)
    assert (refused.value.status, refused.value.named) == (422, name)
    master = Rendezvous(0.0, settles=True)
    call = {**_telling("claim.round", MOST_CLAIMED), "seen": MOST_CLAIMED, "at": MOST_CLAIMED}
    master.call(call, 0.0)
    assert master.round.number == MOST_CLAIMED


def test_of_processes_of_the_past_only_the_newest_are_remembered() -> None:
    """A master serves for weeks."""
    past = Remembered()
    for number in range(2_000):
        past.add(("a", str(number)), number)

    assert past.get(("a", "1999")) == 1999
    assert ("a", "0") not in past
    assert sum(("a", str(number)) in past for number in range(2_000)) == 1024
    past.add(("b", "1"))
    assert past.get(("b", "1")) is True


def test_leaving_twice_or_unknown_is_fine() -> None:
    """The answer to it may have been lost."""
    crowd = trained("a", "b")
    for _ in range(2):
        crowd.leave("b")
    crowd.master.leave("x", "x-1", crowd.now_s)
    crowd.master.hung_up("x", "x-1", crowd.now_s)
    crowd.run(1.0)

    assert (crowd.number, crowd.names) == (2, ["a"])


def test_when_all_have_left_there_is_nothing_to_wait_for() -> None:
    """The next one who comes begins again, with a later number."""
    crowd = trained("a")
    crowd.leave("a")
    assert crowd.master.next_s() is None
    crowd.run(2.0)
    crowd.arrive("b")
    crowd.run(1.0)

    assert (crowd.number, crowd.names) == (2, ["b"])


def test_who_arrives_and_goes_at_once_makes_no_round() -> None:
    """There is nothing that differs."""
    crowd = trained("a")
    crowd.arrive("b")
    crowd.leave("b")
    crowd.run(3.0)

    assert crowd.number == 1


def test_calls_in_the_wrong_order_change_nothing() -> None:
    """What was told once holds for that round."""
    master = Rendezvous(0.0)
    master.call(meet("a"), 0.0)
    master.tick(0.5)
    master.call(meet("a", seen=1, at=1, ready=True), 0.6)
    assert master.round.formed
    master.call(meet("a", seen=1, at=1, broken=True), 0.7)
    master.call(meet("a", probe=1), 0.7)
    master.tick(1.0)

    assert master.round.number == 2
