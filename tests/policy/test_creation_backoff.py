"""How long a job whose new trainers came to nothing gets no more."""

from operator import attrgetter

from policy.planning.creation_backoff import CreationBackoff, refused, unplaced
from tests.support.builders import NOW_S, job, trainer

JOB = job("net")
_CREATED_S = attrgetter("created_s")


def test_pauses_after_refusals_double_up_to_a_minute() -> None:
    """A refused request costs little."""
    backoff: CreationBackoff | None = None
    pauses = []
    for _ in range(8):
        backoff = refused(backoff, "quota", trainers=3, in_vain=0, now_s=NOW_S)
        pauses.append(backoff.until_s - NOW_S)

    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_job_that_had_more_is_tried_soon() -> None:
    """A quota counts a trainer until it has ended, and then the next one is allowed."""
    before = CreationBackoff(9, NOW_S - 60, NOW_S, 3, "quota")
    after = refused(before, "quota", trainers=2, in_vain=0, now_s=NOW_S)

    assert (after.failures, after.until_s, after.trainers) == (1, NOW_S + 1, 2)


def test_pods_of_a_partial_start_are_made_twice_a_minute_at_most() -> None:
    """However many the API server lets in before it refuses one."""
    backoff = refused(None, "quota", trainers=7, in_vain=7, now_s=NOW_S)

    assert (backoff.partial, backoff.trainers) == (True, 0)
    assert backoff.until_s == NOW_S + 7 * 30


def test_pauses_after_trainers_without_a_node_double_up_to_five_minutes() -> None:
    """Each of them is a pod made in vain; refusals before do not count."""
    backoff = refused(None, "quota", trainers=3, in_vain=0, now_s=NOW_S)
    pauses = []
    for _ in range(7):
        backoff = unplaced(backoff, trainers=3, now_s=NOW_S)
        pauses.append(backoff.until_s - NOW_S)

    assert pauses == [10, 20, 40, 80, 160, 300, 300]


def test_pauses_until_another_job_gives_a_trainer_double_up_to_an_hour() -> None:
    """Tries in free room go on meanwhile: those cost nobody anything."""
    backoff: CreationBackoff | None = None
    pauses = []
    for _ in range(11):
        backoff = unplaced(backoff, trainers=3, now_s=NOW_S)
        allowed = (s for s in range(4000) if backoff.allows_move(NOW_S + s))
        pauses.append(next(allowed))

    assert pauses == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]


def test_more_trainers_with_a_node_than_before_end_the_back_off() -> None:
    """One was created since; and not that after a refusal, which the next creation ends."""
    young = trainer(JOB, 9, "n0", created_s=NOW_S + 1)
    waiting = trainer(JOB, 9, created_s=NOW_S + 1)
    one = trainer(JOB, 1, "n0")
    backoff = unplaced(None, trainers=1, now_s=NOW_S)

    assert backoff.is_over([young, one], _CREATED_S)
    assert not backoff.is_over([waiting, one], _CREATED_S)
    assert not backoff.is_over(
        [young], _CREATED_S
    )  # as many as before: nothing is known of one more
    refusal = refused(None, "quota", trainers=1, in_vain=0, now_s=NOW_S)
    assert not refusal.is_over([young, one], _CREATED_S)


def test_trainers_of_no_use_to_a_size_lengthen_the_pause() -> None:
    """Two of them a minute, as of a partial start."""
    backoff = refused(None, "quota", trainers=6, in_vain=0, now_s=NOW_S)

    assert backoff.after_vain(3).until_s == NOW_S + 3 * 30
    assert backoff.after_vain(0) == backoff
