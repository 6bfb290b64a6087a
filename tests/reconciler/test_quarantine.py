"""An error that comes of one job's data costs that job alone: the others lose no tick."""

from collections.abc import Callable
from typing import Any

import pytest

from kube import request
from kube.request import CONFIGMAPS
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Pod
from policy.document.model import Policy
from policy.names import POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE
from policy.planning.plan import Plan
from policy.planning.planner import plan
from reconciler import loop, plan_isolation, quarantine
from reconciler.jobs import accounting, status
from reconciler.manifests import trainer as trainer_manifests
from reconciler.records import plan_reports
from reconciler.trainers import probe as trainer_probe
from tests.reconciler.world import Process, World
from tests.support.builders import NOW_S, cluster_state, job, node, service

BAD = "bad"


@pytest.fixture
def world() -> World:
    """Four nodes, each with room for four trainers."""
    return World(*[20] * 4)


def _fails_for(real: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which fails where any argument is of the bad job."""

    def failing(*args: Any, **kwargs: Any) -> Any:
        for argument in (*args, *kwargs.values()):
            owner = getattr(argument, "job", argument)
            if getattr(owner, "name", "") == BAD or getattr(argument, "key", "") == f"ml/{BAD}":
                raise OverflowError("too large")
        return real(*args, **kwargs)

    return failing


def _plans_only_without(bad: Callable[[ClusterState], bool]) -> Callable[..., Plan]:
    def planning(cluster: ClusterState, *args: Any) -> Plan:
        if bad(cluster):
            raise OverflowError("too large")
        return plan(cluster, *args)

    return planning


def _has_bad_job(cluster: ClusterState) -> bool:
    return any(job.name == BAD and not job.quarantined for job in cluster.jobs.values())


def test_a_changed_policy_leaves_a_job_in_quarantine_as_it_was(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its accounting counted from nothing afterwards: the sums of ended trainers were lost."""
    world.add_job(BAD, 2, 4)
    process.run(4)
    for pod in world.running(BAD)[:2]:
        world.remove(pod)
    process.run(3)
    with monkeypatch.context() as failing:
        failing.setattr(loop, "plan", _plans_only_without(_has_bad_job))
        process.run(2)
    is_out = world.waiting(BAD)[1] == "Quarantined"
    policy = '{"scheduling": {"extender": "always"}, "fairness": {"maxWeight": 5}}'
    body = {"data": {POLICY_KEY: policy}}
    world.ask(request.merge_patch(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP, body))
    process.round()
    still = world.waiting(BAD)[1]
    process.run(30)

    assert (is_out, still) == (True, "Quarantined")
    assert world.job(BAD).accounting.disrupted == 2
    assert world.waiting(BAD)[0] == "False"


STEPS = {
    "accounting": (accounting, "count_endings"),
    "status": (status, "status"),
    "condition": (status, "waiting"),
    "manifest": (trainer_manifests, "pod"),
    "budget": (trainer_manifests, "disruption_budget"),
    "answer of the dry run": (trainer_probe, "_dry_run"),
    "knowledge of trainers": (trainer_probe, "_template_spec"),
    "decision": (plan_reports, "job_decision"),
    "event": (plan_reports, "_needs_warning"),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_step_that_fails_for_one_job_goes_on_for_the_others(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str]
) -> None:
    """Each tick: another job starts, grows, loses a trainer and gets it back as usual."""
    where, name = step
    monkeypatch.setattr(where, name, _fails_for(getattr(where, name)))
    world.add_job(BAD, 1, 2)
    world.add_job("net", 2, 4)
    for _ in range(6):
        process.round()
        world.step()
    grown = len(world.running("net"))
    world.remove(world.running("net")[0])
    for _ in range(3):
        process.round()
        world.step()

    assert (grown, len(world.running("net"))) == (4, 4)
    assert world.job("net").status.active == 4
    assert process.value("edl_reconciler_rounds_failed_total") == "0.0"


def test_a_job_that_makes_the_planner_fail_is_left_out_of_the_same_tick(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have their plan at once, and the Job says what is wrong with it."""
    monkeypatch.setattr(loop, "plan", _plans_only_without(_has_bad_job))
    world.add_job(BAD, 1, 2)
    for name in ("a", "b", "c"):
        world.add_job(name, 1, 4)
    first = process.round()
    world.step()
    process.run(3)
    process.write_events()

    assert first is not None
    assert {create.job for create in first.creates} == {"ml/a", "ml/b", "ml/c"}
    assert [len(world.running(name)) for name in ("a", "b", "c", BAD)] == [4, 4, 4, 0]
    assert world.waiting(BAD)[:2] == ("True", "Quarantined")
    assert "OverflowError: too large" in world.waiting(BAD)[2]
    assert "OverflowError: too large" in world.events("Quarantined")[0]
    assert process.value("edl_reconciler_jobs_quarantined") == "1.0"
    assert process.value("edl_reconciler_job_quarantines_total") == "1.0"


def test_a_job_is_planned_again_after_its_pause(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to touch it; its condition ends by itself."""
    with monkeypatch.context() as patched:
        patched.setattr(loop, "plan", _plans_only_without(_has_bad_job))
        world.add_job(BAD, 1, 2)
        process.run(5)
    meanwhile = len(world.running(BAD))
    process.run(int(quarantine.FIRST_S))

    assert (meanwhile, len(world.running(BAD))) == (0, 2)
    assert world.waiting(BAD)[:2] == ("False", "Started")
    assert process.value("edl_reconciler_jobs_quarantined") == "0.0"


def test_pauses_grow_while_a_job_makes_the_planner_fail(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In five minutes it is tried six times."""
    monkeypatch.setattr(loop, "plan", _plans_only_without(_has_bad_job))
    world.add_job(BAD, 1, 2)
    process.run(300)

    assert process.value("edl_reconciler_job_quarantines_total") == "5.0"


def test_a_job_in_quarantine_counts_in_its_quota(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a tenant could double a quota by breaking one of two jobs."""
    quota = '{"quotas": [{"namespace": "ml", "requests": {"cpu": 20}}]}'
    world = World(*[20] * 4, policy=quota)
    process = Process(world)
    world.add_job(BAD, 1, 8)
    process.run(5)
    before = len(world.running(BAD))
    monkeypatch.setattr(loop, "plan", _plans_only_without(_has_bad_job))
    world.add_job("net", 1, 8)
    process.run(20)
    process.stop()

    both = len(world.running(BAD)), len(world.running("net"))
    assert (before, sum(both)) == (4, 4)
    assert min(both) >= 1


def test_a_job_in_quarantine_can_be_suspended_and_deleted(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user is not at EDL's mercy; nothing of it stays behind."""
    world.add_job(BAD, 1, 2)
    process.run(4)
    monkeypatch.setattr(loop, "plan", _plans_only_without(_has_bad_job))
    process.run(3)
    running = len(world.running(BAD))
    world.change_job(BAD, {"spec": {"suspend": True}})
    process.run(4)
    suspended = len(world.running(BAD))
    world.ask(request.delete(request.JOBS, "ml", BAD))
    process.run(2)

    assert (running, suspended) == (2, 0)
    assert process.value("edl_reconciler_jobs_quarantined") == "0.0"


def test_a_service_pod_that_makes_the_planner_fail_is_left_out(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs are not blamed for it, and other services get their room."""

    def is_bad(cluster: ClusterState) -> bool:
        return any(pod.name == "evil-0" and not pod.gated for pod in cluster.waiting.values())

    monkeypatch.setattr(loop, "plan", _plans_only_without(is_bad))
    world.add_job("net", 1, 16)
    process.run(5)
    world.add_services(1, prefix="evil", nodeSelector={"disk": "none"})
    world.add_services(3)
    process.run(5)

    assert len(world.running()) == 3
    assert process.value("edl_reconciler_pod_quarantines_total") == "1.0"
    assert process.value("edl_reconciler_job_quarantines_total") == "0.0"


def _isolated(names: list[str], bad: set[str], proven: set[str]) -> tuple[Any, list[set[str]]]:
    """The outcome of one search, and which jobs were planned in each trial."""
    cluster = cluster_state([node("n0", 1000)], [job(name) for name in names])
    trials: list[set[str]] = []

    def make_plan() -> Plan:
        planned = {j.name for j in cluster.jobs.values() if not j.quarantined}
        trials.append(planned)
        if planned & bad:
            raise OverflowError("too large")
        return Plan()

    uids = {j.uid for j in cluster.jobs.values() if j.name in proven}
    outcome = plan_isolation.plan_without_culprits(cluster, make_plan, uids, lambda: NOW_S)
    assert not any(j.quarantined for j in cluster.jobs.values())
    return outcome, trials


def test_one_culprit_among_a_thousand_is_found_in_a_few_plans() -> None:
    """Twice the logarithm; those of the plan before come back in one step."""
    names = [f"j{number}" for number in range(1000)]
    old, old_trials = _isolated(names, {"j700"}, set(names))
    new, new_trials = _isolated(names, {"j999"}, set(names[:999]))

    assert [culprit.name for culprit, _ in old.culprits] == ["j700"]
    assert [culprit.name for culprit, _ in new.culprits] == ["j999"]
    assert len(old_trials) <= 30
    assert len(new_trials) <= 3


def test_many_culprits_cost_the_others_no_plan() -> None:
    """The search ends within its limit, and all jobs of the plan before are in the plan."""
    names = [f"j{number}" for number in range(600)]
    outcome, trials = _isolated(names, set(names[300:]), set(names[:300]))

    assert len(trials) <= plan_isolation.MAX_TRIALS + 1
    assert max(len(planned) for planned in trials[:2]) == 300
    assert 1 <= len(outcome.culprits) <= plan_isolation.MAX_TRIALS


def test_a_planner_that_fails_without_any_job_is_no_jobs_fault() -> None:
    """The tick fails then, as an error of EDL itself."""
    cluster = cluster_state([node("n0", 10)], [job("a")])

    def make_plan() -> Plan:
        raise OverflowError("too large")

    with pytest.raises(OverflowError):
        plan_isolation.plan_without_culprits(cluster, make_plan, set(), lambda: NOW_S)
    assert not cluster.jobs["ml/a"].quarantined


def test_a_search_ends_in_time() -> None:
    """What was not examined has no part in this plan, and is examined with the next."""
    cluster = cluster_state([node("n0", 10)], [job("a"), job("b")])
    now_s = [0.0]

    def make_plan() -> Plan:
        now_s[0] += plan_isolation.MAX_SEARCH_S
        if _has_bad(cluster, "a"):
            raise OverflowError("too large")
        return plan(cluster, Policy(), NOW_S)

    outcome = plan_isolation.plan_without_culprits(cluster, make_plan, set(), lambda: now_s[0])

    assert outcome.plan.deferred
    assert {job_plan.key for job_plan in outcome.plan.jobs} == set()


def _has_bad(cluster: ClusterState, name: str) -> bool:
    return any(j.name == name and not j.quarantined for j in cluster.jobs.values())


def test_inert_objects_use_capacity_and_nothing_else() -> None:
    """A waiting pod is one that does not ask to be scheduled."""
    waiting, bound = service("a"), service("b", node="n0")

    assert _gates(waiting) == (True, waiting.requests)
    assert _gates(bound) == (False, bound.requests)


def _gates(pod: Pod) -> tuple[bool, Any]:
    stub = quarantine.inert(pod, "")
    assert isinstance(stub, Pod)
    return stub.gated, stub.requests
