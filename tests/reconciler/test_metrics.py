"""What dashboards and alerts go by: names, labels and meaning of the reconciler's figures."""

from policy.names import Tier
from policy.plan import JobPlan, Plan, Release
from policy.reasons import Reason
from reconciler.metrics import ReconcilerMetrics
from reconciler.trainer_controller import CreationResult
from runtime.metrics import Metrics
from tests.support.builders import job

MEANING = {
    "plan_seconds": "Time to make one plan.",
    "rounds_failed_total": "Ticks that ended in an error.",
    "trainers_created_total": "Trainer pods created.",
    "trainers_refused_total": "Creations that the API server refused.",
    "trainers_released_total": "Trainers released, by reason.",
    "trainers": "Trainers wanted over all jobs.",
    "jobs": "Elastic jobs, by the reason for their number of trainers.",
    "extender_registration": "1 for what the scheduler's answer to a test pod says of the extender's "
    "entries.",
    "nodes_avoided": "Nodes that at least one job avoids, because trainers failed there.",
    "leader": "1 while this process leads.",
    "watch_age_seconds": "Time since the last message of the quietest watch.",
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
    reconciler_metrics.set_plan(Plan(jobs=jobs))
    reconciler_metrics.count_created(CreationResult(job("a"), 2, Tier.SURPLUS, Reason.SURPLUS))
    reconciler_metrics.count_created(
        CreationResult(job("a"), 0, Tier.SURPLUS, Reason.SURPLUS, "no quota")
    )
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
