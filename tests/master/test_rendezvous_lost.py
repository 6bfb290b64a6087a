"""Members that die, freeze, wait or are busy: who is out of the next round, and when."""

import pytest

from master.membership import ANSWER_GAP_S, DISCONNECTED_S, ENDED_S, PROBE_S, SILENT_S
from master.rendezvous import Rendezvous
from master.round import FORMING_S, SHORT_WINDOW_S, WINDOW_S
from tests.master.crowd import STEP_S, Crowd, meet
from tests.master.rounds import SLACK_S, trained


def test_a_killed_member_is_out_soon() -> None:
    """Its connection is cut, and the others wait for nothing else."""
    crowd = trained("a", "b", "c")
    crowd.kill("b")
    crowd.broken("a", "c")
    took_s = crowd.until(2, 2.0)

    assert took_s == pytest.approx(DISCONNECTED_S + SHORT_WINDOW_S, abs=SLACK_S)
    assert crowd.names == ["a", "c"]
    assert crowd.master.void == 1


def test_a_member_of_which_all_connections_are_cut_is_out_sooner() -> None:
    """Its process has ended; a call that comes all the same keeps it."""
    crowd = trained("a", "b", "c")
    crowd.master.disconnected(crowd.players["c"].member_id, crowd.now_s, has_ended=True)
    crowd.run(ENDED_S / 2)
    crowd.speak(crowd.players["c"])
    crowd.run(DISCONNECTED_S)
    assert crowd.number == 1
    crowd.master.disconnected(crowd.players.pop("b").member_id, crowd.now_s, has_ended=True)
    crowd.broken("a", "c")
    took_s = crowd.until(2, 2.0)

    assert took_s == pytest.approx(ENDED_S + SHORT_WINDOW_S, abs=SLACK_S)
    assert crowd.names == ["a", "c"]


def test_others_hear_at_once_that_a_member_is_lost() -> None:
    """Before the next round: those that compute need not end a step that cannot count."""
    crowd = trained("a", "b", "c")
    crowd.speak(crowd.players["a"])
    waiting = crowd.players["a"].call(crowd.now_s)
    assert waiting.known
    assert not crowd.master.has_answer(waiting)
    crowd.kill("b")
    crowd.run(DISCONNECTED_S + STEP_S)

    assert crowd.number == 1
    assert crowd.master.has_answer(waiting)
    assert crowd.master.answer(waiting)["void"] == 1


def test_a_member_that_calls_again_after_its_connection_was_cut_stays() -> None:
    """The network was at fault."""
    crowd = trained("a", "b")
    crowd.master.disconnected(crowd.players["b"].member_id, crowd.now_s)
    crowd.run(DISCONNECTED_S / 2)
    crowd.speak(crowd.players["b"])
    crowd.run(2.0)

    assert crowd.number == 1


def test_only_a_call_that_knows_of_the_probe_answers_it() -> None:
    """Another call may have been in flight before its process froze."""
    crowd = trained("a", "b")
    late = crowd.players["b"].call(crowd.now_s)
    crowd.players["b"].frozen = True
    crowd.broken("a")
    crowd.run(0.5)
    crowd.master.call(late, crowd.now_s)

    assert crowd.until(2, 2.0) <= PROBE_S - 0.5 + WINDOW_S + SLACK_S
    assert crowd.names == ["a"]


def test_a_member_whose_node_is_gone_is_out_after_a_probe() -> None:
    """The only sign is that it does not answer."""
    crowd = trained("a", "b", "c")
    crowd.kill("b", disconnects=False)
    crowd.broken("a", "c")

    assert crowd.until(2, 2.0) == pytest.approx(PROBE_S + SHORT_WINDOW_S, abs=SLACK_S)
    assert crowd.names == ["a", "c"]


def test_a_frozen_member_is_out_after_a_probe_when_others_wait() -> None:
    """Although no member reports that it is broken."""
    crowd = trained("a", "b", "c")
    crowd.players["b"].frozen = True
    for name in ("a", "c"):
        crowd.players[name].waits_since_s = crowd.now_s
    crowd.run(0.75)
    crowd.speak(crowd.players["a"])
    took_s = 0.75 + crowd.until(2, 3.0)

    assert took_s == pytest.approx(0.75 + PROBE_S + SHORT_WINDOW_S, abs=SLACK_S)
    assert crowd.names == ["a", "c"]


def test_a_probe_lasts_while_answers_to_it_arrive() -> None:
    """The master reads those of a large job one after the other: nobody is dead for waiting there."""
    names = [f"t-{number}" for number in range(20)]
    crowd = trained(*names)
    for player in crowd.players.values():
        player.frozen = True
    crowd.broken("t-0")
    for name in names[1:19]:
        crowd.run(0.1)
        crowd.players[name].frozen = False
    crowd.players["t-0"].frozen = False
    took_s = crowd.until(2, 2.0)

    assert took_s <= ANSWER_GAP_S + WINDOW_S + SLACK_S
    assert crowd.names == names[:19]


def test_a_probe_that_nobody_answers_says_nothing_of_the_members() -> None:
    """The master or its network stood still; those who call again a little later stay."""
    crowd = trained("a", "b", "c")
    crowd.broken("a")
    for player in crowd.players.values():
        player.frozen = True
    crowd.run(2.0)
    for player in crowd.players.values():
        player.frozen = False
    crowd.until(2, 2.0)

    assert crowd.names == ["a", "b", "c"]
    assert [event for _, event, _ in crowd.events if event == "member was dropped"] == []


def test_a_frozen_member_is_out_even_if_nobody_waits() -> None:
    """Because it does not call."""
    crowd = trained("a", "b")
    crowd.players["b"].frozen = True

    assert crowd.until(2, 5.0) <= SILENT_S + WINDOW_S + SLACK_S
    assert crowd.names == ["a"]


def test_who_polls_for_long_may_be_silent_for_as_long() -> None:
    """The limit follows from the call."""
    master = Rendezvous(0.0)
    master.call(meet(wait_s=20.0), 0.0)
    master.tick(21.9)
    assert len(master.report()["members"]) == 1
    assert master.next_s() == 22.0
    master.tick(22.0)

    assert master.events[-1][1] == {"trainer": "a", "why": "it did not call for 22.0 s"}


def test_a_member_that_dies_after_it_has_answered_a_probe_is_found_by_the_next() -> None:
    """A new suspicion starts another probe after the current one."""
    crowd = trained("a", "b", "c", "d")
    crowd.kill("b", disconnects=False)
    crowd.broken("a")
    crowd.run(0.2)
    crowd.kill("c", disconnects=False)
    crowd.run(PROBE_S - 0.2)
    assert crowd.until(2, 0.5) < 0.5
    crowd.broken("a", "d")
    crowd.until(3, 2.0)

    assert crowd.names == ["a", "d"]


def test_one_that_was_dropped_and_calls_again_was_not_dead() -> None:
    """It is the last now, and its limits are twice as long; one event reports it."""
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

    assert 2 * SILENT_S - 1.0 <= took_s <= 2 * SILENT_S + WINDOW_S + SLACK_S
    back = [fields for _, event, fields in crowd.events if "back" in event]
    assert back == [{"trainer": "a", "limits_times": 2.0}]


def test_limits_grow_fourfold_at_most() -> None:
    """However often it was dropped: the others wait for it each time."""
    crowd = trained("a", "b")
    for _ in range(8):
        crowd.players["a"].frozen = True
        crowd.run(4 * SILENT_S + SLACK_S)
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
    assert crowd.master.round.slots[1].incarnation == crowd.players["a"].incarnation
    assert old.refused == "incarnation"


def test_waiting_alone_probes_now_and_then() -> None:
    """At most every 2 s: long steps are normal."""
    crowd = trained("a", "b")
    crowd.players["a"].waits_since_s = crowd.now_s
    crowd.run(10.0)

    assert 3 <= crowd.players["b"].view.probe <= 5
    assert crowd.number == 1


def test_who_lets_others_wait_too_long_is_out_until_its_program_moves() -> None:
    """Its polling thread lives on, which proves nothing."""
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
    """In a round that has formed, and in one that is forming."""
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
    """None of them is dropped."""
    crowd = trained("a", "b", stuck_s=10.0)
    for player in crowd.players.values():
        player.waits_since_s = crowd.now_s
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
    """Not before: loading may take long."""
    crowd = Crowd(stuck_s=90.0)
    crowd.arrive("a")
    crowd.run(300.0, ready=False)
    assert (crowd.number, crowd.names) == (1, ["a"])
    crowd.players["a"].halted = True
    crowd.arrive("b")
    crowd.run(1.0)
    assert (crowd.number, crowd.names) == (2, ["b"])
