"""Who counts as alive, stuck or gone, and what their loss would cost."""

from master.liveness import LEAST_STUCK_S, MOST_STUCK_S, Liveness


def test_a_trainer_is_gone_after_three_heartbeats_that_did_not_come() -> None:
    """Not before; with what it had trained."""
    liveness = Liveness(2.0)
    liveness.beat("a", [{"task": "t", "attempt": 1, "trained": 5}], 0.0)

    assert liveness.due({"a": True}, 6.0) is None
    assert liveness.due({"a": True}, 6.1) == {
        "do": "expire",
        "trainers": {"a": {"t": 5}},
        "stuck": {},
    }


def test_a_trainer_that_beats_without_progress_is_stuck() -> None:
    """Only if it holds something; progress of any kind starts the time anew."""
    liveness = Liveness(2.0)
    held = [{"task": "t", "attempt": 1, "trained": 1}]
    liveness.beat("a", held, 0.0)
    liveness.beat("a", held, LEAST_STUCK_S)

    assert liveness.due({"a": True}, LEAST_STUCK_S) is None
    liveness.beat("a", held, LEAST_STUCK_S + 1)
    assert liveness.due({"a": False}, LEAST_STUCK_S + 1) is None
    due = liveness.due({"a": True}, LEAST_STUCK_S + 1)
    assert due is not None
    assert due["stuck"] == {"a": {"t": 1}}
    liveness.beat("a", [{"task": "t", "attempt": 1, "trained": 2}], LEAST_STUCK_S + 1)
    assert liveness.due({"a": True}, LEAST_STUCK_S + 2) is None


def test_the_patience_follows_what_tasks_take() -> None:
    """Twenty times as long, within limits."""
    liveness = Liveness(2.0)
    liveness.leased("a", 0.0, had_none=True)
    assert liveness.lease_s == LEAST_STUCK_S
    for number in range(1, 9):
        liveness.acknowledged("a", ["t"], 30.0 * number)

    assert liveness.task_s == 30.0
    assert liveness.lease_s == 600.0


def test_a_stuck_trainer_keeps_no_tasks_for_longer_than_an_hour() -> None:
    """However slow tasks usually are: twenty times ten minutes would block the epoch's end."""
    liveness = Liveness(2.0)
    liveness.leased("a", 0.0, had_none=True)
    liveness.acknowledged("a", ["t"], 600.0)
    held = [{"task": "u", "attempt": 1, "trained": 1}]
    liveness.beat("a", held, 600.0)
    liveness.beat("a", held, 600.0 + MOST_STUCK_S + 1.0)
    due = liveness.due({"a": True}, 600.0 + MOST_STUCK_S + 1.0)

    assert liveness.lease_s == MOST_STUCK_S == 3600.0
    assert due is not None
    assert due["stuck"] == {"a": {"u": 1}}


def test_what_a_loss_would_cost() -> None:
    """Records since the last acknowledgement, and the time they took."""
    liveness = Liveness(2.0)
    liveness.leased("a", 10.0, had_none=True)
    assert liveness.uncommitted("a", 15.0) == (0, 0.0)
    liveness.beat("a", [{"task": "t", "trained": 4}, {"task": "u", "trained": 0}], 15.0)
    assert liveness.uncommitted("a", 15.0) == (4, 5.0)
    liveness.acknowledged("a", ["t"], 16.0)

    assert liveness.uncommitted("a", 17.0) == (0, 0.0)
    assert liveness.uncommitted("nobody", 17.0) == (0, 0.0)
    assert liveness.trained("nobody") == {}


def test_after_a_restart_everybody_has_a_full_time() -> None:
    """Nothing of what was heard before is known."""
    liveness = Liveness(2.0)
    liveness.anew(["a"], 100.0)

    assert liveness.due({"a": True, "b": True}, 105.0) is None
    assert liveness.due({"a": True, "b": True}, 107.0) is not None
    assert liveness.age_s("a", 103.0) == 3.0
    assert liveness.age_s("nobody", 103.0) == 0.0
    liveness.forget("a")
    assert liveness.age_s("a", 103.0) == 0.0


def test_a_task_is_not_taken_away_while_the_answer_that_leased_it_is_under_way() -> None:
    """Heartbeats come with every step, and answers take their time."""
    liveness = Liveness(2.0)
    liveness.heard("a", 0.0)

    told = [liveness.beat("a", [], at_s, ["t1"]) for at_s in (0.25, 0.5, 6.0, 6.25)]

    assert told == [[], [], [], ["t1"]]
