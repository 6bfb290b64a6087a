"""The first experiment in full size, in virtual time: what CI holds every change of a rule to."""

import pytest

from e2e.experiments.run import Experiment, in_virtual_time
from e2e.workload import FIRST
from simulator.run import play
from simulator.workload import Arrival, Workload
from tests.support.builders import job, node

pytestmark = [pytest.mark.soak, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    """Seconds for 500 s of 133 nodes and 20 jobs."""
    return in_virtual_time(FIRST)


def test_every_bar_holds(experiment: Experiment) -> None:
    """Start-up, fairness, number of trainers, minimums, pending and killed ones."""
    criteria = experiment.criteria(short=False)
    assert [criterion for criterion in criteria if not criterion.holds] == []
    assert sum(criterion.limit is not None for criterion in criteria) == 9


def test_shares_are_fair_whenever_the_next_job_comes(experiment: Experiment) -> None:
    """Not only in the end: ten seconds suffice for every newcomer."""
    curves = experiment.curves
    submitted = curves.timeline.submitted_s
    for number, moment_s in enumerate(list(submitted.values())[1:], start=1):
        counts = [level.before(moment_s) for level in list(curves.trainers.values())[:number]]
        assert max(counts) <= 1.5 * min(counts)


def test_nobody_moves_once_the_last_job_has_its_share(experiment: Experiment) -> None:
    """From 60 s after the last submission on no trainer is made or stopped."""
    settled_s = max(experiment.curves.timeline.submitted_s.values()) + 60.0
    for lifetime in experiment.curves.timeline.lifetimes:
        assert lifetime.created_s < settled_s
        assert lifetime.deleting_s is None or lifetime.deleting_s < settled_s


def test_as_few_are_killed_with_a_namespace_for_each_job() -> None:
    """Namespaces take turns at kube-scheduler, and nobody gives back what it got by that."""

    def killed(*namespaces: str) -> int:
        jobs = [
            job(name, FIRST.min_trainers, FIRST.max_trainers, namespace=namespace)
            for name, namespace in zip(FIRST.job_names, namespaces, strict=True)
        ]
        arrivals = (
            Arrival(FIRST.job_gap_s * number, job=submitted)
            for number, submitted in enumerate(jobs)
        )
        nodes = (node(name, millis / 1000) for name, millis in FIRST.cpu_millis.items())
        changes = play(Workload(tuple(nodes), tuple(arrivals), FIRST.jobs * FIRST.job_gap_s + 60.0))
        return sum(change.deleted for change in changes)

    assert killed(*FIRST.job_names) <= 1.05 * killed(*["ml"] * FIRST.jobs)
