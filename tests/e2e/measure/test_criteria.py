"""Criteria and reports made of figures."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from rich.console import Console

from e2e.measure import report
from e2e.measure.criteria import (
    Criterion,
    Figures,
    comparison,
    criteria,
    in_cluster_comparison,
    kills_limit,
    measure,
    overcommit_comparison,
)
from e2e.measure.curves import Curves
from e2e.measure.figures import Reclaim
from e2e.measure.pods import Kind
from e2e.measure.record import Timeline
from tests.e2e.runs import lifetime, timeline


def _run() -> Timeline:
    return timeline(
        *(
            lifetime(Kind.TRAINER, uid=f"t{n}", job="job-1", running_s=1.0, node="node-000")
            for n in range(2)
        ),
        lifetime(
            Kind.TRAINER,
            uid="victim",
            job="job-1",
            running_s=1.0,
            deleting_s=51.0,
            ended_s=52.0,
            disruption="PreemptionByScheduler",
        ),
        lifetime(
            Kind.SERVICE,
            uid="a",
            created_s=50.0,
            running_s=53.0,
            nominations=((51.0, "node-000"),),
        ),
        lifetime(Kind.SERVICE, uid="b", created_s=50.0, running_s=52.0),
        steps=((0, 0), (50, 2)),
        jobs=("job-1",),
    )


def _figures() -> Figures:
    return measure(
        _run(),
        min_trainers=2,
        warm_up_s=10,
        demo_s=99,
        cpu_s={"reconciler": 1.5, "webhook": 0.25, "etcd": 9.0},
        edl=("reconciler", "webhook"),
    )


def test_figures_of_a_whole_run() -> None:
    """One run, all figures at once."""
    figures = _figures()
    assert figures.reclaims == (Reclaim(0, 2, 3.0),)
    assert (figures.killed, figures.needed_by_steps, figures.needed_at_start) == (1, (1,), 0)
    assert figures.killed_at_start == 0
    assert figures.trainers == ({"job-1": 3}, {"job-1": 2})
    assert figures.edl_cpu_s == 1.75
    assert figures.trainers_started == 3


def test_every_criterion_of_the_issue_has_a_name_of_its_own() -> None:
    """Names do not repeat, and a run without EDL has no criterion on EDL's CPU."""
    names = [criterion.name for criterion in criteria(_figures())]
    assert len(names) == len(set(names))
    assert "reclaim_0_to_2_s" in names
    assert "edl_cpu_s" in names
    plain = measure(_run(), min_trainers=2, warm_up_s=10, demo_s=99)
    assert "edl_cpu_s" not in [criterion.name for criterion in criteria(plain)]


@pytest.mark.parametrize(
    ("criterion", "holds"),
    [
        (Criterion("b", 6.0, "s", 6.0), True),
        (Criterion("b", 6.1, "s", 6.0), False),
        (Criterion("b", 6.1, "s", 6.0, at_least=True), True),
        (Criterion("b", None, "s", 6.0), False),
        (Criterion("b", None, "s"), True),
    ],
)
def test_a_criterion_holds_at_its_limit_and_never_without_a_value(
    criterion: Criterion, holds: bool
) -> None:
    """What was never reached misses its criterion; without a limit nothing is missed."""
    assert criterion.holds is holds


def test_a_short_run_is_not_held_to_what_takes_time() -> None:
    """CPU in use and Jain's index are reported, without a limit."""
    free = {
        criterion.name for criterion in criteria(_figures(), short=True) if criterion.limit is None
    }
    limited = {criterion.name for criterion in criteria(_figures()) if criterion.limit is not None}
    assert free & limited == {"cpu_in_use_mean_percent", "jain_at_plateaus_min"}


def test_curves_begin_before_the_first_job() -> None:
    """Second 0 is the first submission; what was before it has negative times."""
    run = replace(_run(), submitted_s={"job-1": 5.0, "job-2": 7.0})
    seconds = report.sampled(Curves(run), period_s=1.0)["seconds"]
    assert (seconds[0], seconds[5]) == (-5.0, 0.0)


def test_kills_may_exceed_what_services_force_by_a_fifth() -> None:
    """1.2 x the sum over steps, and what the start needed on top."""
    assert kills_limit(replace(_figures(), needed_by_steps=(50, 50), needed_at_start=30)) == 150


def test_comparison_holds_edl_to_plain_kubernetes() -> None:
    """Reclaim as a ratio, CPU in use as a difference in points; never is never good enough."""
    ours = _figures()
    slow = replace(ours, reclaims=(Reclaim(0, 2, 2.0),), cpu_mean_percent=0.0)
    never = replace(ours, reclaims=(Reclaim(0, 2, None),))
    ratio, mean, _ = comparison(ours, slow)
    assert (ratio.value, ratio.holds, mean.holds) == (1.5, False, True)
    assert not comparison(never, ours)[0].holds
    assert not comparison(ours, never)[0].holds


def test_comparison_holds_pods_to_processes() -> None:
    """Reclaims and kills as ratios, fairness the other way round; without kills there is no ratio to hold."""
    beside = replace(_figures(), killed=10, jain=(1.0, 0.9))
    fair = in_cluster_comparison(replace(beside, killed=12), beside)
    unfair = in_cluster_comparison(replace(beside, killed=13, jain=(1.0, 0.6)), beside)

    assert [criterion.value for criterion in fair] == [1.0, 1.0, 1.2]
    assert all(criterion.holds for criterion in fair)
    assert [criterion.holds for criterion in unfair] == [True, False, False]
    assert in_cluster_comparison(beside, replace(beside, killed=0))[-1].value is None


def test_a_job_that_never_starts_leaves_no_mean() -> None:
    """Means over only those that started would flatter."""
    lonely = measure(
        replace(_run(), submitted_s={"job-2": 0.0}), min_trainers=2, warm_up_s=0, demo_s=1
    )
    by_name = {criterion.name: criterion for criterion in criteria(lonely)}
    assert by_name["first_trainer_mean_s"].value is None
    assert by_name["first_trainer_worst_s"].value is None


def test_overcommit_is_more_trainers_within_the_quota() -> None:
    """Seven tenths of the ratio's gain at least, and services that wait no longer."""
    base = _figures()
    most = base.trainer_limits_peak_cpu
    better = replace(
        base,
        trainers_mean=1.4 * base.trainers_mean,
        cpu_asked_mean_percent=base.cpu_asked_mean_percent + 1,
    )
    assert all(criterion.holds for criterion in overcommit_comparison(better, base, 1.5, most))
    for worse, missed in (
        (replace(better, trainers_mean=1.3 * base.trainers_mean), "trainers_mean_over_without"),
        (replace(better, trainer_limits_peak_cpu=most + 1), "trainer_limits_peak_cpu"),
        (replace(better, cpu_asked_mean_percent=0.0), "cpu_asked_mean_percent"),
        (
            replace(better, reclaims=(replace(base.reclaims[0], seconds=9.0),)),
            "reclaim_0_to_2_over_without",
        ),
    ):
        results = overcommit_comparison(worse, base, 1.5, most)
        assert [criterion.name for criterion in results if not criterion.holds] == [missed]


def test_a_run_without_steps_has_figures_too() -> None:
    """A run that broke off early can still be looked at."""
    figures = measure(timeline(steps=()), min_trainers=2, warm_up_s=0, demo_s=1)
    assert (figures.jain, figures.killed_at_start) == ((), 0)


def test_the_report_is_whole_json(tmp_path: Path) -> None:
    """It carries machine, commit, criteria, raw figures and curves, and leaves no draft behind."""
    figures = _figures()
    path = tmp_path / "deep" / "report.json"
    runs = {"edl": report.run(figures, Curves(_run()))}
    report.write(
        path,
        report.document(machine={"cpus": 2}, commit="abc", criteria=criteria(figures), runs=runs),
    )
    read = orjson.loads(path.read_bytes())
    assert (read["machine"], read["commit"]) == ({"cpus": 2}, "abc")
    assert read["bars"][0] == {
        "name": "reclaim_0_to_2_s",
        "value": 3.0,
        "unit": "s",
        "limit": 6.0,
        "limit_is": "most",
        "holds": True,
    }
    assert read["edl"]["figures"]["killed"] == 1
    assert len(set(map(len, _columns(read["edl"]["curves"])))) == 1
    assert [file.name for file in path.parent.iterdir()] == ["report.json"]


def _columns(curves: dict[str, object]) -> list[list[object]]:
    return [column for column in curves.values() if isinstance(column, list)]


def test_tables_show_what_is_missed() -> None:
    """The tables fit 80 columns and say NO where a criterion is missed."""
    console = Console(width=80, record=True, file=None, quiet=False)
    figures = replace(_figures(), demo_s=301.0)
    with console.capture() as capture:
        console.print(report.criterion_table(criteria(figures), "criteria"))
        console.print(report.plateau_table(figures, (0, 2)))
        console.print(report.stage_table(figures))
        console.print(report.kill_table(figures))
    text = capture.get()
    assert "NO" in text
    assert "never" not in text
    assert max(map(len, text.splitlines())) <= 80
