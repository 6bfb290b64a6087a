"""Which trainers count as alive, stuck or dead, and what their loss would cost."""

from master.commands import Expire
from master.liveness import FIRST_STUCK_S, MAX_STUCK_S, MIN_STUCK_S, Liveness


def test_a_trainer_is_dead_after_three_missing_heartbeats() -> None:
    """Not before; with the records that it had trained."""
    liveness = Liveness(2.0)
    liveness.record_heartbeat("a", {"t": 5}, 0.0)

    assert liveness.expiry_command({"a": ["training"]}, 6.0) is None
    assert liveness.expiry_command({"a": ["training"]}, 6.1) == Expire({"a": {"t": 5}})


def test_a_trainer_that_beats_without_progress_is_stuck() -> None:
    """Only if it holds leases; progress of any kind restarts the time."""
    liveness = Liveness(2.0)
    trained = {"t": 1}
    liveness.record_acknowledged("a", {"s": "training"}, 0.0)
    liveness.record_heartbeat("a", trained, 0.0)
    liveness.record_heartbeat("a", trained, MIN_STUCK_S)

    assert liveness.expiry_command({"a": ["training"]}, MIN_STUCK_S) is None
    liveness.record_heartbeat("a", trained, MIN_STUCK_S + 1)
    assert liveness.expiry_command({"a": []}, MIN_STUCK_S + 1) is None
    due = liveness.expiry_command({"a": ["training"]}, MIN_STUCK_S + 1)
    assert due is not None
    assert due.stuck == {"a": {"t": 1}}
    liveness.record_heartbeat("a", {"t": 2}, MIN_STUCK_S + 1)
    assert liveness.expiry_command({"a": ["training"]}, MIN_STUCK_S + 2) is None


TRAINING = ["training"]


def test_the_patience_follows_what_tasks_take() -> None:
    """Twenty times as long, within limits; a first task may compile for minutes."""
    liveness = Liveness(2.0)
    liveness.record_leased("a", 0.0, had_none=True)
    assert liveness.lease_s(TRAINING) == FIRST_STUCK_S
    for number in range(1, 9):
        liveness.record_acknowledged("a", {"t": "training"}, 30.0 * number)

    assert liveness.task_times["training"].usual_s == 30.0
    assert liveness.lease_s(TRAINING) == 600.0


def test_each_kind_of_task_has_its_own_time() -> None:
    """Forty short evaluations do not make a long task look stuck."""
    liveness = Liveness(2.0)
    liveness.record_leased("a", 0.0, had_none=True)
    liveness.record_acknowledged("a", {"t": "training"}, 400.0)
    for number in range(40):
        liveness.record_acknowledged("a", {"e": "evaluation"}, 401.0 + number)

    assert liveness.lease_s(["evaluation"]) == MIN_STUCK_S
    assert liveness.lease_s(TRAINING) == liveness.lease_s(["training", "evaluation"]) == 3600.0
    assert liveness.lease_s([]) == 0.0


def test_slow_tasks_make_no_patience_of_days_and_healthy_ones_are_not_taken_away() -> None:
    """Twenty times half an hour would block the epoch's end; three times is what health may need."""
    liveness = Liveness(2.0)
    liveness.record_leased("a", 0.0, had_none=True)
    liveness.record_acknowledged("a", {"t": "training"}, 600.0)
    assert liveness.lease_s(TRAINING) == MAX_STUCK_S == 3600.0
    liveness.record_acknowledged("a", {"t": "training"}, 600.0 + 1800.0)
    trained = {"u": 1}
    liveness.record_heartbeat("a", trained, 2400.0)
    liveness.record_heartbeat("a", trained, 2400.0 + 5400.0)
    assert liveness.expiry_command({"a": TRAINING}, 2400.0 + 5400.0) is None
    liveness.record_heartbeat("a", trained, 2400.0 + 5401.0)
    due = liveness.expiry_command({"a": TRAINING}, 2400.0 + 5401.0)

    assert due is not None
    assert due.stuck == {"a": {"u": 1}}


def test_what_a_task_usually_takes_follows_the_newest_by_a_fifth() -> None:
    """The time of several that are acknowledged together is divided among them."""
    liveness = Liveness(2.0)
    liveness.record_leased("a", 0.0, had_none=True)
    liveness.record_acknowledged("a", {"t": "training", "u": "training"}, 20.0)
    assert liveness.task_times["training"].usual_s == 10.0
    liveness.record_acknowledged("a", {"v": "training"}, 40.0)

    assert liveness.task_times["training"].usual_s == 12.0


def test_a_loss_costs_what_it_costs_below_a_second_too() -> None:
    """Also for a trainer that sent only heartbeats, and after a restart."""
    liveness = Liveness(2.0)
    trained = {"t": 4, "u": 0}
    liveness.record_heartbeat("a", trained, 10.0)
    assert liveness.uncommitted("a", 10.5) == (4, 0.5)
    assert liveness.silence_s("a", 10.5) == 0.5
    liveness.reset(["a"], 100.0)
    liveness.record_heartbeat("a", trained, 101.0)

    assert liveness.uncommitted("a", 103.0) == (4, 3.0)


def test_every_call_is_a_sign_of_life() -> None:
    """A call that leases or acknowledges as well as a heartbeat."""
    liveness = Liveness(2.0)
    liveness.record_leased("a", 10.0, had_none=False)
    assert liveness.silence_s("a", 12.0) == 2.0
    liveness.record_acknowledged("a", {}, 13.0)

    assert liveness.silence_s("a", 14.0) == 1.0


def test_a_trainer_that_never_called_is_dead_too() -> None:
    """Its time begins when it is first checked: its tasks would be lost for ever."""
    liveness = Liveness(2.0)
    liveness.forget("b")
    assert liveness.expiry_command({"b": ["training"]}, 10.0) is None
    assert liveness.expiry_command({"b": ["training"]}, 16.0) is None
    due = liveness.expiry_command({"b": ["training"]}, 16.5)

    assert due is not None
    assert due.trainers == {"b": {}}


def test_what_a_loss_would_cost() -> None:
    """Records since the last acknowledgement, and the time they took."""
    liveness = Liveness(2.0)
    liveness.record_leased("a", 10.0, had_none=True)
    assert liveness.uncommitted("a", 15.0) == (0, 0.0)
    liveness.record_heartbeat("a", {"t": 4, "u": 0}, 15.0)
    assert liveness.uncommitted("a", 15.0) == (4, 5.0)
    liveness.record_acknowledged("a", {"t": "training"}, 16.0)

    assert liveness.uncommitted("a", 17.0) == (0, 0.0)
    assert liveness.uncommitted("nobody", 17.0) == (0, 0.0)
    assert liveness.trained_records("nobody") == {}


def test_after_a_restart_everybody_has_a_full_time() -> None:
    """Calls before the restart do not count."""
    liveness = Liveness(2.0)
    liveness.reset(["a"], 100.0)

    assert liveness.expiry_command({"a": TRAINING, "b": TRAINING}, 105.0) is None
    assert liveness.expiry_command({"a": TRAINING, "b": TRAINING}, 107.0) is not None
    assert liveness.silence_s("a", 103.0) == 3.0
    assert liveness.silence_s("nobody", 103.0) == 0.0
    liveness.forget("a")
    assert liveness.silence_s("a", 103.0) == 0.0


def test_a_task_is_not_taken_away_while_the_answer_that_leased_it_is_under_way() -> None:
    """Heartbeats are sent with every step, and answers take time."""
    liveness = Liveness(2.0)
    liveness.record_call("a", 0.0)

    leaked = [liveness.record_heartbeat("a", {}, at_s, ["t1"]) for at_s in (0.25, 0.5, 6.0, 6.25)]

    assert leaked == [[], [], [], ["t1"]]


def test_what_would_be_lost_does_not_exceed_json() -> None:
    """Whatever a trainer trained of its tasks."""
    alive = Liveness(1.0)
    trained = {f"{number}": 1 << 53 for number in range(3)}
    alive.record_heartbeat("a", trained, 0.0)

    assert alive.uncommitted("a", 1.0)[0] == 1 << 53
