"""Elastic jobs from a cluster in memory: they start, grow, share and give way."""

import orjson
import pytest

from kube import request
from kube.request import JOBS
from policy.names import ANNOTATION_MAX, Tier
from runtime.logs import JsonFormatter
from tests.reconciler import objects
from tests.reconciler.world import Process, World


def _total(world: World, name: str) -> int:
    accounting = world.job(name).accounting
    return (
        len(accounting.open)
        + accounting.succeeded
        + accounting.failed
        + accounting.disrupted
        + accounting.released
    )


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


def test_log_lines_of_creations_have_documented_keys(
    world: World, process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    """Scripts may look for them: CHANGELOG lists changes."""
    caplog.set_level("INFO")
    world.add_job("net", 2, 10)
    process.round()
    lines = [orjson.loads(JsonFormatter("reconciler").format(r)) for r in caplog.records]
    created = next(line for line in lines if line["message"] == "trainers created")
    keys = {"job": "ml/net", "tier": "guaranteed", "created": 2, "error": ""}

    assert created.items() >= {"component": "reconciler", **keys}.items()


def test_releases_come_before_creations(world: World) -> None:
    """They free capacity sooner; a single writer keeps the order in which writes were begun."""
    process = Process(world, writers=1)
    world.add_job("old", 1, 4)
    process.run(3)
    body = {"metadata": {"annotations": {ANNOTATION_MAX: "3"}}}
    world.change_job("old", body)
    world.add_job("new", 1, 2)
    before = len(world.api.writes)
    process.round()
    ends = [write.path.rpartition("/")[2] for write in world.api.writes[before:]]
    process.stop()

    assert ends.index("eviction") < ends.index("pods")


def test_status_and_books_follow_the_trainers(world: World, process: Process) -> None:
    """Every one is active, ready and open in the accounting."""
    world.add_job("net", 2, 4)
    process.run(3)
    job = world.job("net")

    assert (job.status.active, job.status.ready) == (4, 4)
    assert job.accounting.next_id == 4
    assert job.accounting.open == {0, 1, 2, 3}


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
    """Trainers are released for them in one tick, and none is created while they wait."""
    world.add_job("net", 2, 10)
    process.run(3)
    world.add_services(3, cpu=4)
    plan = process.round()
    creations = len([w for w in world.api.writes if w.path.endswith("/pods")])
    process.run(1)

    assert plan is not None
    assert (len(plan.releases), plan.creates) == (3, ())
    assert len(world.running()) == 3
    assert len(world.running("net")) == 3
    assert len([w for w in world.api.writes if w.path.endswith("/pods")]) == creations


def test_what_services_took_comes_back(world: World, process: Process) -> None:
    """Once they are deleted; the accounting counts those released meanwhile."""
    world.add_job("net", 2, 10)
    process.run(3)
    world.add_services(3, cpu=4)
    process.run(8)
    for pod in world.pods():
        world.remove(pod)
    process.run(8)
    accounting = world.job("net").accounting

    assert len(world.running("net")) == 6
    assert (accounting.released, accounting.failed, accounting.disrupted) == (3, 0, 0)
    assert accounting.next_id == _total(world, "net") == 9


def test_victims_of_kube_scheduler_are_disrupted(world: World, process: Process) -> None:
    """They never count as failures, and new ids take their place."""
    world.add_job("net", 1, 6)
    process.run(3)
    for pod in world.running("net")[:4]:
        world.preempt(pod)
    process.run(12)
    accounting = world.job("net").accounting

    assert (accounting.disrupted, accounting.failed) == (4, 0)
    assert len(world.running("net")) == 6


def test_a_lower_maximum_is_obeyed(world: World, process: Process) -> None:
    """Surplus goes; the user changes an annotation and nothing else."""
    world.add_job("net", 1, 5)
    process.run(3)
    world.change_job("net", {"metadata": {"annotations": {ANNOTATION_MAX: "2"}}})
    process.run(3)

    assert len(world.running("net")) == 2
    assert world.job("net").accounting.released == 3


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
    """The built-in controller creates the pods; an event explains why."""
    world.add_job("plain", 1, 4, managed=False)
    process.run(1)
    process.write_events()

    assert world.job("plain").parallelism > 1
    assert world.pods("plain") == []
    assert world.events("ParallelismMoved")[0] == (
        "Changed parallelism from 1 to 4. Kubernetes' Job controller runs this Job, because it was "
        "created while EDL's webhook was unavailable; to have EDL manage it, delete and create it "
        "again"
    )


def test_a_job_that_cannot_be_elastic_is_reported(world: World, process: Process) -> None:
    """It gets no trainer, and an event that names the annotation."""
    world.add_job("net", 5, 2)
    process.run(2)
    process.write_events()

    assert world.pods("net") == []
    (text,) = world.events("Invalid")
    assert "min must not exceed max" in text


def test_a_job_without_room_is_told_what_helps(world: World, process: Process) -> None:
    """A warning, once."""
    world.add_job("net", 1, 2, cpu=17)
    process.run(3)
    process.write_events()

    (text,) = world.events("FitsNoNode")
    assert "lower the trainers' requests" in text


def test_events_name_what_was_made_and_released(world: World, process: Process) -> None:
    """Enough for `kubectl describe job` to explain what happened."""
    world.add_job("net", 2, 10)
    process.run(3)
    world.add_services(1, cpu=4)
    process.run(2)
    process.write_events()

    assert world.events("TrainersMade")[0] == "Created 2 guaranteed trainers"
    (released,) = world.events("TrainersReleased")
    assert "ServicesFirst (another namespace needs 4 cpu)" in released


def test_figures_of_the_loop_are_scraped(world: World, process: Process) -> None:
    """Its target, created and released trainers, and whether it leads."""
    world.add_job("net", 2, 10)
    process.run(3)
    world.add_services(1, cpu=4)
    process.run(1)

    value = process.value
    assert value('edl_reconciler_trainers_created_total{tier="guaranteed"}') == "2.0"
    assert value('edl_reconciler_trainers_created_total{tier="surplus"}') == "4.0"
    assert value('edl_reconciler_trainers_released_total{reason="ServicesFirst"}') == "1.0"
    assert value("edl_reconciler_trainers") == "5.0"
    assert value("edl_reconciler_leader") == "1.0"
    assert value('edl_reconciler_jobs{reason="NoRoom"}') == "1.0"
    assert value("edl_reconciler_watch_age_seconds") == "0.0"


def test_figures_of_jobs_go_with_them(world: World, process: Process) -> None:
    """A reason that no job has is not scraped."""
    world.add_job("a", 1, 1)
    world.add_job("b", 1, 1)
    process.run(3)
    both = process.metrics.text().decode()
    world.ask(request.delete(JOBS, "ml", "a"))
    process.run(2)
    before = process.metrics.text().decode()
    world.ask(request.delete(JOBS, "ml", "b"))
    process.run(2)

    assert 'edl_reconciler_jobs{reason="AtMax"} 2.0' in both
    assert 'edl_reconciler_jobs{reason="AtMax"} 1.0' in before
    assert "edl_reconciler_jobs{" not in process.metrics.text().decode()


def test_the_age_of_what_is_known_is_scraped(world: World, process: Process) -> None:
    """Of the watch that was silent longest."""
    process.run(2)
    world.clock.advance(40)
    process.tick()

    assert process.value("edl_reconciler_watch_age_seconds") == "40.0"


def test_a_job_runs_that_requests_a_resource_that_no_node_advertises() -> None:
    """Another scheduler extender accounts for it, and the policy says so."""
    policy = '{"reserve": {"maxLoad": {"cpu": 1}}, "ignoredResources": ["nvidia.com/gpumem"]}'
    world = World(16, policy=policy)
    body = objects.job("net", 1, 2)
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["resources"]["requests"]["nvidia.com/gpumem"] = "3000"
    world.ask(request.create(request.JOBS, "ml", body))
    process = Process(world)
    process.run(3)
    process.stop()

    assert len(world.pods("net")) == 2


def test_the_log_has_the_clusters_use_once_a_minute(
    world: World, process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    """What the nodes have, and what training and services use of it."""
    world.add_job("a", 2, 2)
    with caplog.at_level("INFO", "reconciler.loop"):
        process.run(62)

    lines = [record for record in caplog.records if record.message == "cluster"]
    assert len(lines) == 2
    assert "training 0, services 0" in str(vars(lines[0]))
    assert "training 10, services 0" in str(vars(lines[1]))


def test_services_are_timed_by_what_they_waited_for(world: World, process: Process) -> None:
    """One that takes capacity from trainers, and one that fits at once."""
    world.add_job("a", 1, 10)
    process.run(3)
    world.add_services(1, cpu=4)
    process.run(4)
    world.change_job("a", {"spec": {"suspend": True}})
    process.run(3)
    world.add_services(1, cpu=1, prefix="small")
    process.run(2)

    count = "edl_reconciler_service_start_seconds_count"
    assert process.value(f'{count}{{cause="released"}}') == "1.0"
    assert process.value(f'{count}{{cause="free"}}') == "1.0"
    assert process.value("edl_reconciler_services_waiting") == "0.0"
