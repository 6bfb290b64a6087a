"""What dashboards and alerts go by: names, labels and meaning of the reconciler's figures."""

from dataclasses import replace

from kube.object_change import ObjectChange
from policy.cluster.snapshot import Phase
from policy.names import Tier
from policy.planning.plan import JobPlan, Plan, Release
from policy.reasons import RELEASES, Reason
from reconciler.metrics import ReconcilerMetrics
from reconciler.trainers.controller import CreationResult
from runtime.metrics import Metrics
from tests.support.builders import NOW_S, cluster_state, job, node, service, shape, trainer

_NAMED = "of the oldest jobs by name, of the others as one job named other."
MEANING = {
    "plan_seconds": "Time to make one plan.",
    "rounds_failed_total": "Ticks that ended in an error.",
    "trainers_created_total": "Trainer pods created.",
    "trainers_refused_total": "Creations that the API server refused.",
    "trainers_released_total": "Trainers released, by reason.",
    "trainers": "Trainers wanted over all jobs.",
    "jobs": "Elastic jobs, by the reason for their number of trainers.",
    "extender_registration": "1 for the state of the extender's entries in kube-scheduler, found with a "
    "test pod.",
    "nodes_avoided": "Nodes that at least one job avoids because trainers failed there.",
    "jobs_quarantined": "Jobs left out of planning because EDL failed on their data.",
    "job_quarantines_total": "Times that a job was left out of planning.",
    "pod_quarantines_total": "Times that a service pod was left out of planning.",
    "leader": "1 while this process leads.",
    "watch_age_seconds": "Time since the last message of the quietest watch.",
    "jobs_below_min": "Jobs that had their minimum and now run fewer trainers, by the plan's reason.",
    "unmanaged_jobs_total": "Jobs that the built-in controller runs, because the webhook was unavailable "
    "at their creation.",
    "job_running_trainers": f"Trainers that run, {_NAMED}",
    "job_wanted_trainers": f"Trainers wanted by the plan, {_NAMED}",
    "job_min_trainers": f"Minimum of trainers, {_NAMED}",
    "job_share_ratio": f"Weighted dominant share of the cluster, {_NAMED}",
    "nodes": "Nodes of the cluster.",
    "cpu_cores": "CPU that nodes have, and that bound pods request.",
    "memory_bytes": "Memory that nodes have, and that bound pods request.",
    "training_limits": "CPU cores and bytes of memory that bound training pods may use: their limits, "
    "or requests.",
    "devices": "Other resources of nodes, at most 8, and requests for them.",
    "lost_seconds_total": "Seconds of training lost with trainers, as reported by masters.",
    "services_waiting": "Service pods without a node.",
    "starved_service_seconds": "Wait of the oldest service that would fit if surplus trainers left; 0 "
    "for none.",
    "service_start_seconds": "Time from a service pod's creation until its containers run, by what it "
    "waited for.",
    "reclaim_objective_services_total": "Services that count for the policy's reclaim objective, by "
    "whether they kept it.",
    "reclaim_objective_ratio": "Share of services that the objective requires to start in time; 0 for none.",
    "reclaim_objective_seconds": "Time within which the objective requires services to run; 0 for none.",
    "reclaim_objective_budget_left_ratio": "Part of the objective's budget left in its window; below 0, "
    "the objective is missed.",
    "reclaim_objective_burn_rate": "Burn rate of the budget; 1 uses it up in exactly one window.",
    "reclaim_seconds": "Time from creation to binding of a pod that needed preemption, and no volume or place.",
}


def _lines(metrics: Metrics) -> list[str]:
    return metrics.text().decode().splitlines()


def test_every_figure_says_what_it_is() -> None:
    """One line of help each; `_created` is what the client library adds."""
    metrics = Metrics("reconciler")
    ReconcilerMetrics(metrics)
    helps = [line for line in _lines(metrics) if line.startswith("# HELP edl_reconciler_")]
    meanings = dict(line.removeprefix("# HELP edl_reconciler_").split(" ", 1) for line in helps)

    assert {
        name: text for name, text in meanings.items() if not name.endswith("_created")
    } == MEANING


def test_figures_of_tiers_are_there_from_the_start() -> None:
    """So that a rate sees the first trainer."""
    metrics = Metrics("reconciler")
    ReconcilerMetrics(metrics)

    for tier in Tier:
        assert f'edl_reconciler_trainers_created_total{{tier="{tier}"}} 0.0' in _lines(metrics)


def test_figures_follow_what_is_done() -> None:
    """By tier and by reason."""
    metrics = Metrics("reconciler")
    reconciler_metrics = ReconcilerMetrics(metrics)
    jobs = (
        JobPlan("ml/a", 0, 3, Reason.AT_MAX, {}, 0.0),
        JobPlan("ml/b", 0, 4, Reason.AT_MAX, {}, 0.0),
        JobPlan("ml/c", 0, 1, Reason.NO_ROOM, {}, 0.0),
    )
    reconciler_metrics.set_plan(Plan(jobs=jobs), cluster_state(), NOW_S)
    reconciler_metrics.count_created(CreationResult(job("a"), 2, Tier.SURPLUS))
    reconciler_metrics.count_created(CreationResult(job("a"), 0, Tier.SURPLUS, "no quota"))
    release = Release("ml/a", "u", "ml", "p", "n0", Reason.FAIR_SHARE, {})
    reconciler_metrics.count_released([release, release])
    reconciler_metrics.set_state(leads=True, age_s=7.5)

    lines = _lines(metrics)
    for line in (
        "trainers 8.0",
        'jobs{reason="AtMax"} 2.0',
        'jobs{reason="NoRoom"} 1.0',
        'trainers_created_total{tier="surplus"} 2.0',
        "trainers_refused_total 1.0",
        'trainers_released_total{reason="FairShare"} 2.0',
        "leader 1.0",
        "watch_age_seconds 7.5",
    ):
        assert f"edl_reconciler_{line}" in lines


def test_releases_are_counted_from_the_start() -> None:
    """By every reason for one, so that a rate sees the first."""
    metrics = Metrics("reconciler")
    ReconcilerMetrics(metrics)

    assert len(set(RELEASES)) == len(RELEASES)
    for reason in RELEASES:
        assert f'edl_reconciler_trainers_released_total{{reason="{reason}"}} 0.0' in _lines(metrics)


def test_only_the_leader_counts_what_all_replicas_see() -> None:
    """A sum over the replicas has each service once; one that takes over knows those that wait."""
    leader, standby = Metrics("reconciler"), Metrics("reconciler")
    waiting = service("web", created_s=NOW_S - 4)
    running = replace(waiting, node="n0", phase=Phase.RUNNING)
    later = replace(running, uid="uid-later", name="later")
    for metrics, leads in ((leader, True), (standby, False)):
        figures = ReconcilerMetrics(metrics)
        figures.set_state(leads=leads, age_s=0.0)
        figures.observe_pods({waiting.uid: ObjectChange(None, waiting)}, NOW_S)
        figures.observe_pods(
            {later.uid: ObjectChange(None, replace(waiting, uid=later.uid))}, NOW_S
        )
        figures.observe_pods({waiting.uid: ObjectChange(waiting, running)}, NOW_S)
        figures.set_state(leads=not leads, age_s=0.0)
        figures.observe_pods({later.uid: ObjectChange(waiting, later)}, NOW_S + 2)

    total = 'edl_reconciler_service_start_seconds_sum{cause="free"}'
    assert f"{total} 4.0" in _lines(leader)
    assert f"{total} 6.0" in _lines(standby)


def test_who_does_not_lead_has_no_figures_of_plans() -> None:
    """They would be old, and a sum over the replicas would have them twice."""
    metrics = Metrics("reconciler")
    figures = ReconcilerMetrics(metrics)
    owner = job("a")
    overcommitted = trainer(owner, 0, "n0", requests=shape(2), limits=shape(3))
    cluster = cluster_state([node("n0")], [owner], [overcommitted])
    figures.set_state(leads=True, age_s=0.0)
    figures.set_plan(Plan(jobs=(JobPlan("ml/a", 0, 3, Reason.AT_MAX, {}, 0.5),)), cluster, NOW_S)
    before = _lines(metrics)
    figures.set_state(leads=False, age_s=0.0)

    assert 'edl_reconciler_job_share_ratio{job="a",namespace="ml"} 0.5' in before
    assert 'edl_reconciler_cpu_cores{use="allocatable"} 18.0' in before
    assert 'edl_reconciler_cpu_cores{use="training"} 2.0' in before
    assert 'edl_reconciler_training_limits{resource="cpu"} 3.0' in before
    after = [line for line in _lines(metrics) if not line.startswith("#")]
    assert "edl_reconciler_trainers 0.0" in after
    for name in ("jobs{", "job_share", "nodes ", "cpu_cores", "memory_bytes", "training_limits"):
        assert not [line for line in after if line.startswith(f"edl_reconciler_{name}")]


def test_a_reclaim_may_take_minutes() -> None:
    """Its buckets reach further than those of a plan."""
    metrics = Metrics("reconciler")
    ReconcilerMetrics(metrics)
    bounds = {
        name: [
            float(line.partition('le="')[2].partition('"')[0])
            for line in _lines(metrics)
            if line.startswith(f"edl_reconciler_{name}_bucket")
        ][-2]
        for name in ("plan_seconds", "reclaim_seconds")
    }

    assert bounds["reclaim_seconds"] >= 60.0
    assert bounds["plan_seconds"] < bounds["reclaim_seconds"]
