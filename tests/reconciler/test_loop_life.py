"""The life of elastic jobs, from a cluster in memory."""

from collections.abc import Iterator

import pytest

from kube import request
from kube.request import JOBS, PODS
from policy.names import ANNOTATION_MAX, Tier
from policy.snapshot import Phase
from tests.reconciler.world import Process, World


@pytest.fixture
def world() -> World:
    """Two nodes, each with room for three trainers of 5 CPU and one CPU more."""
    return World(16, 16)


@pytest.fixture
def process(world: World) -> Iterator[Process]:
    """A reconciler there."""
    made = Process(world)
    yield made
    made.stop()


def _conditions(world: World, name: str) -> list[str]:
    return [c.type for c in world.job(name).status.conditions if c.status == "True"]


def _total(world: World, name: str) -> int:
    books = world.job(name).books
    return len(books.open) + books.succeeded + books.failed + books.disrupted + books.released


def test_a_job_starts_with_its_minimum_and_grows(world: World, process: Process) -> None:
    """The guaranteed trainers first, then surplus up to what fits."""
    world.add_job("net", 2, 10)
    process.round()
    first = world.pods("net")
    process.run(3)
    tiers = [pod.tier for pod in world.running("net")]

    assert [pod.tier for pod in first[:2]] == [Tier.GUARANTEED, Tier.GUARANTEED]
    assert len(tiers) == 6
    assert tiers.count(Tier.GUARANTEED) == 2


def test_status_and_books_follow_the_trainers(world: World, process: Process) -> None:
    """Every one is active, ready and open in the books."""
    world.add_job("net", 2, 4)
    process.run(3)
    job = world.job("net")

    assert (job.status.active, job.status.ready) == (4, 4)
    assert job.books.next_id == 4
    assert job.books.open == {0, 1, 2, 3}


def test_a_settled_cluster_gets_no_writes(world: World, process: Process) -> None:
    """A plan on the outcome of a plan does nothing, and neither does the loop."""
    world.add_job("net", 2, 10)
    process.run(5)
    before = len(world.api.writes)
    process.run(5)

    assert len(world.api.writes) == before


def test_priority_classes_are_there_before_the_first_trainer(
    world: World, process: Process
) -> None:
    """Else the API server would refuse it."""
    world.add_job("net", 1, 1)
    process.round()
    posts = [w.path.rpartition("/")[2] for w in world.api.writes if w.method == "POST"]

    assert posts.index("pods") > posts.index("priorityclasses")
    assert "poddisruptionbudgets" in posts


def test_services_get_their_room_back(world: World, process: Process) -> None:
    """Trainers are let go for them in one round, and none is made while they wait."""
    world.add_job("net", 2, 10)
    process.run(3)
    world.add_services(3, cpu=4)
    plan = process.round()
    made = len([w for w in world.api.writes if w.path.endswith("/pods")])
    process.run(1)

    assert plan is not None
    assert (len(plan.releases), plan.creates) == (3, ())
    assert len(world.running()) == 3
    assert len(world.running("net")) == 3
    assert len([w for w in world.api.writes if w.path.endswith("/pods")]) == made


def test_what_services_took_comes_back(world: World, process: Process) -> None:
    """Once they are gone, and the books say what was released on the way."""
    world.add_job("net", 2, 10)
    process.run(3)
    world.add_services(3, cpu=4)
    process.run(8)
    for pod in world.pods():
        world.remove(pod)
    process.run(8)
    books = world.job("net").books

    assert len(world.running("net")) == 6
    assert (books.released, books.failed, books.disrupted) == (3, 0, 0)
    assert books.next_id == _total(world, "net") == 9


def test_victims_of_kube_scheduler_are_disrupted(world: World, process: Process) -> None:
    """They never count as failures, and new ids take their place."""
    world.add_job("net", 1, 6)
    process.run(3)
    for pod in world.running("net")[:4]:
        world.preempt(pod)
    process.run(12)
    books = world.job("net").books

    assert (books.disrupted, books.failed) == (4, 0)
    assert len(world.running("net")) == 6


def test_a_job_is_complete_when_a_trainer_succeeds_and_the_others_end(
    world: World, process: Process
) -> None:
    """Nothing is made after the first success."""
    world.add_job("net", 1, 4)
    process.run(3)
    first, *others = world.running("net")
    world.end(first, Phase.SUCCEEDED)
    process.run(3)
    meanwhile = _conditions(world, "net")
    for pod in others:
        world.end(pod, Phase.SUCCEEDED)
    process.run(3)
    job = world.job("net")

    assert meanwhile == []
    assert _conditions(world, "net") == ["SuccessCriteriaMet", "Complete"]
    assert (job.status.succeeded, job.status.active, job.books.next_id) == (4, 0, 4)


def test_a_failed_trainer_is_replaced_after_a_while(world: World, process: Process) -> None:
    """Ten seconds after the first failure."""
    world.add_job("net", 1, 1)
    process.run(2)
    (pod,) = world.running("net")
    world.end(pod, Phase.FAILED)
    process.run(5)
    at_first = world.running("net")
    process.run(8)

    assert at_first == []
    assert [pod.trainer_id for pod in world.running("net")] == [1]
    assert world.job("net").status.failed == 1


def test_too_many_failures_end_a_job(world: World, process: Process) -> None:
    """First FailureTarget, and Failed when its other trainers are gone."""
    world.add_job("net", 1, 4, backoffLimit=0)
    process.run(3)
    world.end(world.running("net")[0], Phase.FAILED)
    process.round()
    first = _conditions(world, "net")
    process.run(3)

    assert first == ["FailureTarget"]
    assert _conditions(world, "net") == ["FailureTarget", "Failed"]
    assert world.pods("net") == []
    assert world.job("net").books.released == 3


def test_a_job_in_which_nothing_changes_ends_at_its_deadline(
    world: World, process: Process
) -> None:
    """Not a moment before; without an end it would hold capacity that its owner gave up."""
    world.add_job("net", 2, 2, activeDeadlineSeconds=300)
    process.run(5)
    start_s = world.job("net").status.start_s
    world.clock.advance(start_s + 299 - world.clock.now_s)
    process.round()
    before = _conditions(world, "net")
    world.clock.advance(1)
    process.run(3)

    assert before == []
    assert _conditions(world, "net") == ["FailureTarget", "Failed"]
    assert world.pods("net") == []


def test_counts_of_a_job_are_written_once_a_second(world: World, process: Process) -> None:
    """However many of its trainers end; what came in between is written together."""
    world.add_job("net", 3, 3)
    process.run(5)
    counted: list[int] = []
    for pod, pause_s in zip(world.running("net"), (0.25, 0.5, 0.25), strict=True):
        world.end(pod, Phase.FAILED)
        process.round()
        counted.append(world.job("net").status.failed)
        world.clock.advance(pause_s)
    process.round()

    assert counted == [1, 1, 1]
    assert world.job("net").status.failed == 3


def test_the_end_of_a_job_is_written_at_once(world: World, process: Process) -> None:
    """Whatever was written a moment before: somebody waits for it."""
    world.add_job("net", 3, 3, backoffLimit=1)
    process.run(5)
    over: list[bool] = []
    for pod in world.running("net")[:2]:
        world.end(pod, Phase.FAILED)
        process.round()
        over.append("FailureTarget" in _conditions(world, "net"))
        world.clock.advance(0.25)

    assert over == [False, True]


def test_a_job_under_deletion_is_not_written_to(world: World, process: Process) -> None:
    """Its end is the garbage collector's; a finalizer may hold it for long."""
    world.add_job("net", 2, 2)
    world.change_job("net", {"metadata": {"finalizers": ["example.com/hold"]}})
    process.run(5)
    world.ask(request.delete(JOBS, "ml", "net"))
    before = [w for w in world.api.writes if "/jobs/" in w.path]
    process.run(3)

    assert world.job("net").deleting
    assert world.pods("net") == []
    assert [w for w in world.api.writes if "/jobs/" in w.path] == before


def test_a_deleted_job_is_forgotten(world: World, process: Process) -> None:
    """Its pods go with it, and nothing is written to it any more."""
    world.add_job("net", 1, 4)
    process.run(3)
    world.ask(request.delete(JOBS, "ml", "net"))
    before = len(world.api.writes)
    process.run(5)

    assert world.api.all(PODS) == []
    assert len(world.api.writes) == before


def test_a_job_made_again_under_its_name_starts_anew(world: World, process: Process) -> None:
    """With ids from 0, once the old pods have made their names free."""
    world.add_job("net", 1, 2)
    process.run(3)
    world.ask(request.delete(JOBS, "ml", "net"))
    again = world.add_job("net", 1, 3)
    process.run(8)

    assert [pod.trainer_id for pod in world.running("net")] == [0, 1, 2]
    assert {pod.owner_uid for pod in world.running("net")} == {again["metadata"]["uid"]}
    assert world.job("net").books.failed == 0


def test_suspending_stops_a_job_and_resuming_starts_it(world: World, process: Process) -> None:
    """Its trainers count as released."""
    world.add_job("net", 1, 4)
    process.run(3)
    world.change_job("net", {"spec": {"suspend": True}})
    process.run(3)
    suspended = _conditions(world, "net"), world.pods("net")
    world.change_job("net", {"spec": {"suspend": False}})
    process.run(5)

    assert suspended == (["Suspended"], [])
    assert _conditions(world, "net") == []
    assert len(world.running("net")) == 4
    assert world.job("net").books.released == 4


def test_a_lower_maximum_is_obeyed(world: World, process: Process) -> None:
    """Surplus goes; the user changes an annotation and nothing else."""
    world.add_job("net", 1, 5)
    process.run(3)
    world.change_job("net", {"metadata": {"annotations": {ANNOTATION_MAX: "2"}}})
    process.run(3)

    assert len(world.running("net")) == 2
    assert world.job("net").books.released == 3


def test_two_jobs_share_what_there_is(world: World, process: Process) -> None:
    """The second gets its minimum at once and its half with patience."""
    world.add_job("a", 1, 6)
    process.run(3)
    world.add_job("b", 1, 6)
    process.run(1)
    world.preempt(next(pod for pod in world.running("a") if pod.tier is Tier.SURPLUS))
    process.run(2)
    soon = len(world.running("b"))
    process.run(60)

    assert soon >= 1
    assert [len(world.running(name)) for name in "ab"] == [3, 3]


def test_an_unmanaged_job_gets_its_parallelism_moved(world: World, process: Process) -> None:
    """The built-in controller makes the pods; an event says why it is so."""
    world.add_job("plain", 1, 4, managed=False)
    process.run(1)
    process.tell()

    assert world.job("plain").parallelism > 1
    assert world.pods("plain") == []
    assert world.events("ParallelismMoved")[0] == (
        "the built-in controller runs this Job, because it was created while EDL's webhook was "
        "away: parallelism moved from 1 to 4; it grows and shrinks more slowly than other elastic "
        "jobs: create it again"
    )


def test_a_job_that_cannot_be_elastic_is_reported(world: World, process: Process) -> None:
    """It gets no trainer, and an event that names the annotation."""
    world.add_job("net", 5, 2)
    process.run(2)
    process.tell()

    assert world.pods("net") == []
    (text,) = world.events("Invalid")
    assert "min must not exceed max" in text


def test_a_job_without_room_is_told_what_helps(world: World, process: Process) -> None:
    """A warning, once."""
    world.add_job("net", 1, 2, cpu=17)
    process.run(3)
    process.tell()

    (text,) = world.events("FitsNoNode")
    assert "lower the trainers' requests" in text


def test_events_name_what_was_made_and_released(world: World, process: Process) -> None:
    """Enough for `kubectl describe job` to tell the story."""
    world.add_job("net", 2, 10)
    process.run(3)
    world.add_services(1, cpu=4)
    process.run(2)
    process.tell()

    assert world.events("TrainersMade")[0] == "made 2 guaranteed trainers"
    (released,) = world.events("TrainersReleased")
    assert "ServicesFirst (shop/web-0 waits for 4 cpu)" in released


def test_figures_of_the_loop_are_scraped(world: World, process: Process) -> None:
    """What it wants, what it made and let go, and whether it leads."""
    world.add_job("net", 2, 10)
    process.run(3)
    world.add_services(1, cpu=4)
    process.run(1)

    value = process.value
    assert value('edl_reconciler_trainers_made_total{tier="guaranteed"}') == "2.0"
    assert value('edl_reconciler_trainers_made_total{tier="surplus"}') == "4.0"
    assert value('edl_reconciler_trainers_released_total{reason="ServicesFirst"}') == "1.0"
    assert value("edl_reconciler_trainers_count") == "5.0"
    assert value("edl_reconciler_leader_count") == "1.0"
    assert value('edl_reconciler_jobs_count{reason="NoRoom"}') == "1.0"
    assert value("edl_reconciler_watch_age_seconds") == "0.0"


def test_figures_of_jobs_go_with_them(world: World, process: Process) -> None:
    """A reason that no job has is not scraped."""
    world.add_job("a", 1, 1)
    world.add_job("b", 1, 1)
    process.run(3)
    both = process.metrics.text().decode()
    world.ask(request.delete(JOBS, "ml", "a"))
    process.run(2)
    one = process.metrics.text().decode()
    world.ask(request.delete(JOBS, "ml", "b"))
    process.run(2)

    assert 'edl_reconciler_jobs_count{reason="AtMax"} 2.0' in both
    assert 'edl_reconciler_jobs_count{reason="AtMax"} 1.0' in one
    assert "edl_reconciler_jobs_count{" not in process.metrics.text().decode()


def test_the_age_of_what_is_known_is_scraped(world: World, process: Process) -> None:
    """Of the watch that was silent longest."""
    process.run(2)
    world.clock.advance(40)
    process.tick()

    assert process.value("edl_reconciler_watch_age_seconds") == "40.0"
