"""Restarts, lost answers, refusals and two reconcilers, on a cluster in memory."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kube import errors
from kube.request import JOBS
from policy.cluster.snapshot import Phase
from policy.names import ANNOTATION_BOOKS
from tests.reconciler.server import look, of
from tests.reconciler.world import Process, World, posted

DOWN = errors.Unavailable("down")
EVICTIONS = of("POST", "/eviction")
CREATIONS = of("POST", "/namespaces/ml/pods")


@contextmanager
def _process(world: World, leads: Callable[[], bool] = lambda: True) -> Iterator[Process]:
    reconciler = Process(world, leads)
    try:
        yield reconciler
    finally:
        reconciler.stop()


@pytest.fixture
def world() -> World:
    """Room for six trainers, and a job that wants them."""
    cluster = World(16, 16)
    cluster.add_job("net", 2, 6)
    return cluster


@pytest.fixture
def process(world: World) -> Iterator[Process]:
    """A reconciler there."""
    with _process(world) as reconciler:
        yield reconciler


def _is_exact(world: World, live: int = 6) -> None:
    """Every id is in exactly one place, no name was made twice, and all trainers are there."""
    accounting = world.job("net").accounting
    counted = accounting.succeeded + accounting.failed + accounting.disrupted + accounting.released
    names = Counter(world.api.pods_made.values())

    assert accounting.next_id == len(accounting.open) + counted
    assert accounting.open == {pod.trainer_id for pod in world.running("net")}
    assert len(world.running("net")) == live
    assert max(names.values()) == 1


def test_a_restart_makes_nothing_twice(world: World, process: Process) -> None:
    """A new process reads all it needs from the API server."""
    process.round()
    with _process(world) as second:
        second.run(5)

    _is_exact(world)
    assert world.job("net").accounting.next_id == 6


def test_endings_during_a_restart_are_counted(world: World, process: Process) -> None:
    """A failure that nobody watched, and a victim that has been deleted."""
    process.run(40)
    failed, victim, *_ = world.running("net")
    world.end(failed, Phase.FAILED)
    world.remove(victim)
    with _process(world) as second:
        second.run(20)
    accounting = world.job("net").accounting

    _is_exact(world)
    assert (accounting.failed, accounting.disrupted, accounting.next_id) == (1, 1, 8)


def test_books_written_before_a_crash_use_up_their_ids(world: World, process: Process) -> None:
    """Their pods never came, so they count as disrupted and are not handed out again."""
    world.api.fake.faults.fail_next(DOWN, 99, match=CREATIONS)
    process.round()
    world.api.fake.faults.clear()
    with _process(world) as second:
        second.run(5)

    _is_exact(world)
    assert world.job("net").accounting.disrupted == 6
    assert min(pod.trainer_id for pod in world.running("net")) == 6


def test_lost_answers_make_nothing_twice(world: World, process: Process) -> None:
    """The pods were created although the answers were lost; the watch shows them."""
    world.api.fake.faults.lose_answers(6, match=CREATIONS)
    process.run(8)

    _is_exact(world)
    assert world.job("net").accounting.next_id == 6


def test_a_lost_answer_is_met_again_as_a_pod_of_our_own(world: World, process: Process) -> None:
    """Tried again before the watch shows it, the name is taken, and by this very job."""
    world.api.fake.faults.lose_answers(2, match=CREATIONS)
    process.round()
    world.clock.advance(2)
    process.tick()  # without a look
    process.run(4)

    accounting = world.job("net").accounting
    assert len(world.running("net")) == 6
    assert accounting.open == {pod.trainer_id for pod in world.running("net")}
    assert (accounting.disrupted, accounting.failed) == (0, 0)


def test_an_id_whose_pod_came_and_went_is_not_used_again(world: World, process: Process) -> None:
    """Its answer was lost, its pod was made, taken away and counted: the id is spent."""
    world.api.fake.faults.lose_answers(6, match=CREATIONS)
    process.round()
    world.schedule()
    process.round()
    for pod in world.running("net"):
        world.preempt(pod)
    process.run(10)

    _is_exact(world)
    assert world.job("net").accounting.disrupted == 6


def test_a_lost_answer_to_the_books_only_costs_ids(world: World, process: Process) -> None:
    """The write took effect, its pods were not made: those ids count as disrupted."""
    world.api.fake.faults.lose_answers(1, match=of("PATCH", "/jobs/net"))
    process.run(8)

    _is_exact(world)


def test_a_conflict_on_the_books_is_no_error(world: World, process: Process) -> None:
    """Somebody else wrote to the Job; the next tick reads it and continues."""
    look(process.cache)
    world.change_job("net", {"metadata": {"labels": {"a": "b"}}})
    process.tick()
    first = world.pods("net")
    process.run(4)

    assert first == []
    _is_exact(world)


def test_books_that_were_edited_do_not_hand_out_an_id_again(world: World, process: Process) -> None:
    """Nonsense in the annotation is replaced; new ids are above those of all existing pods."""
    process.run(3)
    nonsense = {ANNOTATION_BOOKS: "nonsense"}
    world.change_job("net", {"metadata": {"annotations": nonsense}})
    world.preempt(world.running("net")[0])
    process.run(12)

    assert [pod.trainer_id for pod in world.running("net")] == [1, 2, 3, 4, 5, 6]
    assert world.job("net").accounting.next_id == 7


def test_books_of_a_newer_version_are_left_alone(world: World, process: Process) -> None:
    """After a way back to this version the trainers run on, no id is given, and the Job says why."""
    process.run(3)
    newer = '{"version":2,"trainers":[0,1,2,3,4,5]}'
    world.change_job("net", {"metadata": {"annotations": {ANNOTATION_BOOKS: newer}}})
    world.preempt(world.running("net")[0])
    process.run(12)
    job = world.job("net")

    assert job.accounting_text == newer
    assert [pod.trainer_id for pod in world.running("net")] == [1, 2, 3, 4, 5]
    (waiting,) = (c for c in job.status.conditions if c.type == "edl.training/Waiting")
    assert (waiting.status, waiting.reason) == ("True", "Invalid")
    assert "of version 2, of a newer EDL" in waiting.message


def test_a_refused_creation_is_tried_again_with_its_id(world: World, process: Process) -> None:
    """A quota of the namespace refuses for a while; the back-offs between tries double."""
    quota = errors.Forbidden("exceeded quota: pods", status=403)
    world.api.fake.faults.fail_next(quota, 999, match=CREATIONS)
    process.run(20)
    tries = len(posted(world, "/pods"))
    world.api.fake.faults.clear()
    process.run(40)
    process.write_events()

    assert tries <= 5 * 6
    assert world.job("net").accounting.next_id == 6
    assert len(world.running("net")) == 6
    assert all("exceeded quota" in text for text in world.events("TrainersRefused"))


def test_only_real_refusals_are_counted(world: World, process: Process) -> None:
    """One for each tier and try; ticks in which the job is held back ask nothing."""
    world.api.fake.faults.fail_next(errors.Forbidden("no", status=403), 999, match=CREATIONS)
    process.run(3)

    assert process.value("edl_reconciler_trainers_refused_total") == "6.0"


def test_a_trainer_that_is_gone_already_needs_no_eviction(world: World, process: Process) -> None:
    """Not found counts as evicted."""
    process.run(3)
    look(process.cache)
    world.change_job("net", {"spec": {"suspend": True}})
    process.cache.jobs.follow_once()
    for pod in world.running("net"):
        world.remove(pod)
    process.tick()
    process.run(2)

    accounting = world.job("net").accounting
    assert (accounting.failed, accounting.next_id, accounting.open) == (0, 6, frozenset())


def test_an_api_server_that_is_away_changes_nothing(world: World, process: Process) -> None:
    """Ticks fail quietly, nothing is lost, and afterwards all is as it should be."""
    process.run(3)
    world.api.fake.faults.fail_next(DOWN, 100_000, match=lambda _: True)
    for _ in range(30):
        world.clock.advance(1)
        process.round()
    world.api.fake.faults.clear()
    world.preempt(world.running("net")[0])
    process.run(12)

    _is_exact(world)
    assert world.job("net").accounting.released == 0


def test_an_api_server_that_goes_away_in_the_middle(world: World, process: Process) -> None:
    """Creations get no answer, and the watches neither."""
    look(process.cache)
    world.api.fake.faults.fail_next(DOWN, 40, match=lambda _: True)
    for _ in range(8):
        world.clock.advance(1)
        process.round()
    world.api.fake.faults.clear()
    process.run(20)

    _is_exact(world)


def test_an_old_picture_is_not_acted_on(world: World, process: Process) -> None:
    """Nothing is released or made on knowledge older than three minutes."""
    process.run(3)
    world.add_services(3, cpu=4)
    look(process.cache)
    world.clock.advance(180)
    before = len(world.api.writes)

    assert process.tick() is None
    assert len(world.api.writes) == before
    assert process.round() is not None


def test_a_picture_of_less_than_three_minutes_is_acted_on(world: World, process: Process) -> None:
    """A slow API server does not keep the reconciler from acting on jobs."""
    process.run(3)
    look(process.cache)
    world.clock.advance(179.9)

    assert process.tick() is not None


def test_before_the_first_lists_nothing_is_done(world: World, process: Process) -> None:
    """A cluster half seen is not the cluster."""
    process.cache.nodes.follow_once()
    process.cache.jobs.follow_once()

    assert process.tick() is None
    assert world.api.writes == []


def test_who_does_not_lead_does_not_write(world: World) -> None:
    """It watches, and reports that it does not lead."""
    standby = Process(world, leads=lambda: False)
    standby.run(3)
    standby.stop()

    assert world.api.writes == []
    assert standby.value("edl_reconciler_leader") == "0.0"


def test_who_does_not_lead_remembers_no_more_pods_than_who_leads(world: World) -> None:
    """Trainers come and go for weeks while it stands by."""
    leader, standby = Process(world), Process(world, leads=lambda: False)
    for _ in range(4):
        for process in (leader, standby):
            process.run(4)
        world.preempt(world.running("net")[0])
    for process in (leader, standby):
        process.run(4)
        process.stop()
    kept = standby.loop.components.job_tracker._deleted_pods  # noqa: SLF001 - that nothing piles up inside is the fact

    assert world.job("net").accounting.disrupted == 4
    assert sum(len(pods) for pods in kept.values()) == 0


def test_of_two_reconcilers_one_acts_at_a_time(world: World) -> None:
    """The new leader continues where the former one stopped."""
    leader = [0]
    both = [Process(world, leads=lambda i=i: leader[0] == i) for i in range(2)]  # type: ignore[misc]
    for turn in range(12):
        leader[0] = turn // 2 % 2
        for process in both:
            process.round()
        world.step()
        if turn == 6:
            world.preempt(world.running("net")[0])
    for process in both:
        process.run(4)
        process.stop()

    _is_exact(world)
    assert world.job("net").accounting.disrupted == 1


def test_two_that_both_believe_to_lead_make_nothing_twice(world: World) -> None:
    """The accounting fences them: the second write does not find the version it is based on."""
    both = [Process(world) for _ in range(2)]
    for process in both:
        look(process.cache)
    for process in both:
        process.tick()
    first = world.job("net").accounting
    for _ in range(6):
        world.step()
        for process in both:
            process.round()
    for process in both:
        process.stop()

    assert first.next_id == 6
    _is_exact(world)


def test_losing_the_lead_before_acting_stops_the_round(world: World) -> None:
    """Only the question whether to begin was answered with yes."""
    answers = iter([True])
    with _process(world, lambda: next(answers, False)) as process:
        process.round()

    assert world.api.writes == []


def test_losing_the_lead_between_books_and_pods_makes_no_pod(world: World) -> None:
    """Whoever leads next uses other ids, and so does the first when it leads once more."""
    again: list[bool] = []

    def until_books_are_written() -> bool:
        return bool(again) or not any(w.method == "PATCH" for w in world.api.writes)

    with _process(world, until_books_are_written) as first, _process(world) as second:
        first.round()
        created = world.pods("net")
        second.run(3)
        again.append(True)
        world.preempt(world.running("net")[0])
        first.run(12)

    assert created == []
    assert world.job("net").accounting.disrupted == 7
    _is_exact(world)


def test_a_parallelism_that_cannot_be_written_is_no_event(process: Process, world: World) -> None:
    """The next tick tries again."""
    world.add_job("plain", 1, 4, managed=False)
    world.api.fake.faults.fail_next(DOWN, 1, match=of("PATCH", "/jobs/plain"))
    process.round()
    process.write_events()

    assert world.events("ParallelismMoved") == []
    assert [job["metadata"]["name"] for job in world.api.all(JOBS)] == ["net", "plain"]
