"""Figures of jobs by name, and which of them have lost their minimum."""

from dataclasses import replace

from policy.cluster.snapshot import Job, Phase
from policy.planning.plan import JobPlan
from policy.reasons import Reason
from reconciler.jobs import figures as job_figures
from reconciler.jobs.figures import OTHERS, JobFigures, StartedJobs
from tests.support.builders import NOW_S, cluster_state, job, node, trainers


def _plan(owner: Job, target: int = 2, share: float = 0.25) -> JobPlan:
    return JobPlan(owner.key, target, target, Reason.NO_ROOM, {}, share)


def test_the_oldest_jobs_have_names_and_the_others_are_summed() -> None:
    """So that metrics are bounded however many jobs there are, and sums are exact."""
    jobs = [replace(job(f"j{i}", 1 + i), created_s=NOW_S - i) for i in range(4)]
    pods = [pod for owner in jobs for pod in trainers(owner, ["n0"])]
    cluster = cluster_state([node("n0", 40)], jobs, pods)
    figures = job_figures.by_name([_plan(owner) for owner in jobs], cluster, 2)

    assert figures == {
        ("ml", "j3"): JobFigures(running=1, target=2, minimum=4, share=0.25),
        ("ml", "j2"): JobFigures(running=1, target=2, minimum=3, share=0.25),
        OTHERS: JobFigures(running=2, target=4, minimum=3, share=0.5),
    }


def test_without_names_all_jobs_are_one() -> None:
    """Without jobs there is nothing, and a job that has just been deleted does not count."""
    owner = job("a")
    cluster = cluster_state([node("n0")], [owner])

    assert set(job_figures.by_name([_plan(owner)], cluster, 0)) == {OTHERS}
    assert job_figures.by_name([_plan(job("gone"))], cluster, 5) == {}


def test_a_job_is_below_its_minimum_after_it_had_it() -> None:
    """One that has not started yet waits; that is no loss."""
    owner, started = job("net", 2), StartedJobs()
    pods = trainers(owner, ["n0", "n0"])
    cluster = cluster_state([node("n0")], [owner])
    plans = [_plan(owner)]
    waiting = started.below_minimum(plans, cluster, NOW_S)
    for pod in pods:
        cluster.put_pod(pod)
    complete = started.below_minimum(plans, cluster, NOW_S)
    cluster.put_pod(replace(pods[0], phase=Phase.PENDING, node=""))
    lost = started.below_minimum(plans, cluster, NOW_S)

    assert (waiting, complete, lost) == ({}, {}, {Reason.NO_ROOM: 1})


def test_trainers_on_a_lost_node_do_not_run() -> None:
    """Their pods are Running until the node controller evicts them, which takes minutes."""
    owner, started = job("net", 2), StartedJobs()
    cluster = cluster_state([node("n0"), node("n1")], [owner], trainers(owner, ["n0", "n1"]))
    complete = started.below_minimum([_plan(owner)], cluster, NOW_S)
    cluster.put_node(node("n1", ready=False, silent=True))
    silent = started.below_minimum([_plan(owner)], cluster, NOW_S)
    cluster.drop_node("n1")

    assert complete == {}
    assert silent == {Reason.NO_ROOM: 1}
    assert started.below_minimum([_plan(owner)], cluster, NOW_S) == {Reason.NO_ROOM: 1}


def test_a_job_that_loses_a_node_while_it_starts_has_started() -> None:
    """All its trainers run by their pods when the node is seen to be gone."""
    owner, started = job("net", 2), StartedJobs()
    cluster = cluster_state([node("n0")], [owner])
    waiting = started.below_minimum([_plan(owner)], cluster, NOW_S)
    for pod in trainers(owner, ["n0", "gone"]):
        cluster.put_pod(pod)

    assert waiting == {}
    assert started.below_minimum([_plan(owner)], cluster, NOW_S) == {Reason.NO_ROOM: 1}


def test_a_new_leader_takes_jobs_with_trainers_as_started() -> None:
    """Of those without any it cannot know."""
    one, none = job("one", 2), job("none", 2)
    cluster = cluster_state([node("n0")], [one, none], trainers(one, ["n0"]))

    assert StartedJobs().below_minimum([_plan(one), _plan(none)], cluster, NOW_S) == {
        Reason.NO_ROOM: 1
    }


def test_jobs_that_should_have_no_trainers_are_not_below() -> None:
    """Suspended, or ended."""
    owner = job("net", 2)
    cluster = cluster_state([node("n0")], [owner], trainers(owner, ["n0"]))
    ending = replace(_plan(owner), reason=Reason.ENDING)
    started = StartedJobs()
    below = started.below_minimum([ending], cluster, NOW_S)
    cluster.put_job(replace(owner, suspended=True))

    assert (below, started.below_minimum([_plan(owner)], cluster, NOW_S)) == ({}, {})


def test_jobs_of_the_built_in_controller_count_once() -> None:
    """They show that the webhook was away, or not reached."""
    first, second = job("a", managed=False), job("b", managed=False)
    cluster = cluster_state([node("n0")], [first, job("c")])
    started = StartedJobs()
    for _ in range(3):
        started.below_minimum([_plan(first), _plan(job("c"))], cluster, NOW_S)
    cluster.put_job(second)
    started.below_minimum([_plan(first), _plan(second)], cluster, NOW_S)

    assert started.unmanaged_total == 2
