"""How elastic jobs end, fail, pause and go, from a cluster in memory."""

from kube import request
from kube.request import JOBS, PODS
from policy.cluster.snapshot import Phase
from tests.reconciler.world import Process, World


def _conditions(world: World, name: str) -> list[str]:
    return [c.type for c in world.job(name).status.conditions if c.status == "True"]


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
    assert (job.status.succeeded, job.status.active, job.accounting.next_id) == (4, 0, 4)


def test_a_trainer_that_saves_and_exits_with_0_when_it_is_deleted_does_not_end_its_job(
    world: World, process: Process
) -> None:
    """It has left its work to the others, who grow again when services give room back."""
    world.leave = Phase.SUCCEEDED
    world.add_job("net", 1, 10)
    process.run(5)
    before = len(world.running("net"))
    world.add_services(2)
    process.run(30)
    meanwhile = len(world.running("net"))
    for service in world.pods():
        if not service.job:
            world.remove(service)
    process.run(60)
    job = world.job("net")

    assert meanwhile < before
    assert len(world.running("net")) == before
    assert _conditions(world, "net") == []
    assert (job.accounting.succeeded, job.accounting.released > 0) == (0, True)


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
    """First FailureTarget, and Failed once its other trainers are deleted."""
    world.add_job("net", 1, 4, backoffLimit=0)
    process.run(3)
    world.end(world.running("net")[0], Phase.FAILED)
    process.round()
    first = _conditions(world, "net")
    process.run(3)

    assert first == ["FailureTarget"]
    assert _conditions(world, "net") == ["FailureTarget", "Failed"]
    assert world.pods("net") == []
    assert world.job("net").accounting.released == 3


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
    process.run(40)
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
    """With trainers of its own; it steps over the names that old pods still have."""
    world.add_job("net", 1, 2)
    process.run(3)
    world.ask(request.delete(JOBS, "ml", "net"))
    again = world.add_job("net", 1, 3)
    process.run(8)

    assert [pod.trainer_id for pod in world.running("net")] == [2, 3, 4]
    assert {pod.owner_uid for pod in world.running("net")} == {again["metadata"]["uid"]}
    assert world.job("net").accounting.failed == 0


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
    assert world.job("net").accounting.released == 4


def test_a_job_that_succeeded_just_before_it_was_suspended_is_complete(
    world: World, process: Process
) -> None:
    """Its end has a start, without which the API server refuses it."""
    world.add_job("net", 1, 4)
    process.run(3)
    first = world.running("net")[0]
    world.end(first, Phase.SUCCEEDED)
    process.round()
    world.change_job("net", {"spec": {"suspend": True}})
    process.run(4)

    assert _conditions(world, "net")[-2:] == ["SuccessCriteriaMet", "Complete"]
    assert world.job("net").status.start_s > 0.0
    assert world.job("net").status.terminating == 0


def test_a_suspended_job_fails_by_failures_that_are_seen_late(
    world: World, process: Process
) -> None:
    """As with the built-in controller; it need not be resumed for that."""
    world.add_job("net", 1, 1, backoffLimit=0)
    process.run(2)
    world.end(world.running("net")[0], Phase.FAILED)
    world.change_job("net", {"spec": {"suspend": True}})
    process.run(3)

    assert [c for c in _conditions(world, "net") if c != "Suspended"] == ["FailureTarget", "Failed"]
