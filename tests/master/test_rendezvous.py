"""Rounds of the rendezvous: when they are proclaimed, and which members they have."""

import pytest

from master.rendezvous import Rendezvous
from master.round import MAX_WINDOW_S, SHORT_WINDOW_S, WINDOW_S
from runtime.call_checks import RefusedError
from tests.master.crowd import STEP_S, Crowd, meet
from tests.master.rounds import SLACK_S, trained


def test_those_who_arrive_together_make_one_round() -> None:
    """Ordered by age; it has formed when all are ready."""
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
        "members": [{"trainer": name, "rank": i} for i, name in enumerate(["b", "a", "c"])],
    }
    assert all(player.view.formed for player in crowd.players.values())
    assert [(event, fields) for _, event, fields in crowd.events if event.startswith("round ")] == [
        ("round proclaimed", {"round": 1, "trainers": ["b", "a", "c"]}),
        ("round has formed", {"round": 1}),
    ]


def test_a_round_comes_soon_after_the_last_change_and_never_long_after_the_first() -> None:
    """0.2 s and 1 s, however many arrive."""
    crowd = trained("a")
    crowd.arrive("b")
    assert crowd.until(2, 1.0) == pytest.approx(WINDOW_S, abs=SLACK_S)
    crowd.run(0.5)
    begun_s = crowd.now_s
    for number in range(30):
        crowd.arrive(f"c{number}")
        crowd.run(0.1)
        if crowd.number > 2:
            break

    assert crowd.now_s - begun_s == pytest.approx(MAX_WINDOW_S, abs=0.1 + SLACK_S)
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
    """The next one does not wait until it has formed."""
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
    """The present round continues."""
    crowd = trained("a", "b")
    crowd.leave("a")

    assert crowd.master.void == 0
    assert crowd.until(2, 1.0) == pytest.approx(WINDOW_S, abs=SLACK_S)
    crowd.run(5.0)
    assert (crowd.number, crowd.names) == (2, ["b"])
    assert crowd.players["a"].newest_round == 2
    assert not crowd.players["a"].dropped


def test_a_call_that_comes_after_the_leave_changes_nothing() -> None:
    """It may have been in flight for longer."""
    crowd = trained("a", "b")
    late = crowd.players["a"].call(crowd.now_s)
    crowd.leave("a")
    crowd.players.pop("a")
    crowd.master.call(late, crowd.now_s)
    crowd.run(2.0)

    assert (crowd.number, crowd.names) == (2, ["b"])


def test_broken_with_nobody_gone_is_a_new_number_for_the_same_members() -> None:
    """Within 0.2 s, and at once when all are broken."""
    crowd = trained("a", "b")
    crowd.broken("a")
    assert crowd.until(2, 1.0) == pytest.approx(WINDOW_S, abs=SLACK_S)
    crowd.run(1.0)
    crowd.broken("a", "b")

    assert crowd.until(3, 1.0) == pytest.approx(SHORT_WINDOW_S, abs=SLACK_S)
    assert crowd.names == ["a", "b"]
    assert (crowd.number, crowd.master.void) == (3, 2)


def test_those_who_wait_for_the_round_after_a_leave_get_it_sooner() -> None:
    """All of them: one that trains still gives the others time to come."""
    for waiting, window_s in ((("a", "b"), SHORT_WINDOW_S), (("a",), WINDOW_S)):
        crowd = trained("a", "b", "c")
        crowd.leave("c")
        for name in waiting:
            crowd.players[name].waits_since_s = crowd.now_s - 0.001
            crowd.speak(crowd.players[name])
        assert crowd.until(2, 1.0) == pytest.approx(window_s, abs=SLACK_S)
        assert crowd.names == ["a", "b"]


def test_a_newcomer_is_waited_for_even_if_all_are_broken() -> None:
    """One round serves both."""
    crowd = trained("a", "b")
    crowd.broken("a", "b")
    crowd.arrive("c")

    assert crowd.until(2, 1.0) == pytest.approx(WINDOW_S, abs=SLACK_S)
    assert crowd.names == ["a", "b", "c"]


def test_another_program_is_refused_by_the_entry_that_differs() -> None:
    """The error has both values, and what to do."""
    master = Rendezvous(0.0)
    master.call(meet("a", code={"model": "1", "batch": "32"}), 0.0)
    master.call(meet("b", code={"batch": "32", "model": "1"}), 0.0)
    with pytest.raises(RefusedError, match=r"code\.model is '2' with c, but '1' with a") as caught:
        master.call(meet("c", code={"model": "2", "batch": "32"}), 0.1)
    with pytest.raises(RefusedError, match=r"code\.batch is None"):
        master.call(meet("c", code={"model": "1"}), 0.1)

    assert (caught.value.status, caught.value.field) == (409, "code.model")
    assert "same program" in str(caught.value)
    master.tick(0.3)
    assert [member["trainer"] for member in master.report()["members"]] == ["a", "b"]


def test_another_program_may_begin_when_nobody_is_left() -> None:
    """Also where only its own previous process is left, which cannot be alive."""
    master = Rendezvous(0.0)
    master.call(meet("a", code={"model": "1"}), 0.0)
    master.call(meet("a", incarnation="a-2", code={"model": "2"}), 0.1)
    master.leave("a", "a-2", 0.2)
    master.call(meet("b", code={"model": "3"}), 0.3)
    master.tick(0.6)

    assert [member["trainer"] for member in master.report()["members"]] == ["b"]


def test_leaving_twice_or_unknown_is_fine() -> None:
    """The answer to the first leave may have been lost."""
    crowd = trained("a", "b")
    for _ in range(2):
        crowd.leave("b")
    crowd.master.leave("x", "x-1", crowd.now_s)
    crowd.master.disconnected(("x", "x-1"), crowd.now_s)
    crowd.run(1.0)

    assert (crowd.number, crowd.names) == (2, ["a"])


def test_when_all_have_left_there_is_nothing_to_wait_for() -> None:
    """The next member starts again, with a later number."""
    crowd = trained("a")
    crowd.leave("a")
    assert crowd.master.next_s() is None
    crowd.run(2.0)
    crowd.arrive("b")
    crowd.run(1.0)

    assert (crowd.number, crowd.names) == (2, ["b"])


def test_who_arrives_and_goes_at_once_makes_no_round() -> None:
    """The members do not differ from the round."""
    crowd = trained("a")
    crowd.arrive("b")
    crowd.leave("b")
    crowd.run(3.0)

    assert crowd.number == 1


def test_calls_in_the_wrong_order_change_nothing() -> None:
    """What was reported once holds for that round."""
    master = Rendezvous(0.0)
    master.call(meet("a"), 0.0)
    master.tick(0.5)
    master.call(meet("a", seen=1, at=1, ready=True), 0.6)
    assert master.round.formed
    master.call(meet("a", seen=1, at=1, broken=True), 0.7)
    master.call(meet("a", probe=1), 0.7)
    master.tick(1.0)

    assert master.round.number == 2
