"""Per-job values for metrics: by name for a limited number of jobs, summed over all others. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Phase
from policy.planning.plan import JobPlan
from policy.reasons import Reason
from reconciler.jobs.status import NO_TRAINERS_WANTED

OTHERS = ("", "other")
"""Namespace and name of the series that sums the jobs beyond the limit."""


@dataclass(frozen=True, slots=True)
class JobFigures:
    """Values of one job, or sums over several."""

    running: int
    """Trainers whose containers are running."""
    target: int
    minimum: int
    share: float
    """Weighted share of the cluster at the planned number of trainers."""


def by_name(
    plans: Iterable[JobPlan], cluster: ClusterState, named: int
) -> dict[tuple[str, str], JobFigures]:
    """Returns (namespace, name) -> values of the oldest `named` jobs, and OTHERS -> sums over the rest.

    A job keeps its series until it ends, so the series has no gaps.

    Args:
        plans: The newest plan of each job.
        cluster: The cluster state of those plans.
        named: Largest number of jobs listed by name.
    """
    planned = [(cluster.jobs[plan.key], plan) for plan in plans if plan.key in cluster.jobs]
    planned.sort(key=lambda pair: (pair[0].created_s, pair[0].uid))
    by_job = {
        (job.namespace, job.name): _figures(job, plan, cluster) for job, plan in planned[:named]
    }
    unnamed = [_figures(job, plan, cluster) for job, plan in planned[named:]]
    if unnamed:
        by_job[OTHERS] = JobFigures(
            running=sum(figures.running for figures in unnamed),
            target=sum(figures.target for figures in unnamed),
            minimum=sum(figures.minimum for figures in unnamed),
            share=sum(figures.share for figures in unnamed),
        )
    return by_job


def _figures(job: Job, plan: JobPlan, cluster: ClusterState) -> JobFigures:
    running = cluster.live_trainers(job).running
    return JobFigures(running, plan.target, job.min_trainers, plan.share)


class StartedJobs:
    """Remembers which jobs have reached their minimum, to detect those that fell below it."""

    def __init__(self) -> None:
        self._started: dict[str, bool] = {}
        """Job uid -> whether the job has reached its minimum."""
        self._unmanaged: set[str] = set()
        """uids of jobs that the built-in controller runs."""
        self.unmanaged_total = 0
        """Number of jobs the built-in controller runs because the webhook was unavailable at creation."""

    def below_minimum(
        self, plans: Iterable[JobPlan], cluster: ClusterState, now_s: float
    ) -> Mapping[Reason, int]:
        """Returns, by the plan's reason, how many started jobs run fewer trainers than their minimum.

        A job that already has running trainers when this process first sees it counts as started. Pods
        on a lost node report Running for minutes; they do not count as running, but their job counts
        as started.
        """
        lost = {name for name, node in cluster.restricted.items() if node.is_lost(now_s)}
        reachable = cluster.nodes.keys() - lost if lost else cluster.nodes.keys()
        started: dict[str, bool] = {}
        below: Counter[Reason] = Counter()
        unmanaged = set()
        for plan in plans:
            job = cluster.jobs.get(plan.key)
            if job is None or job.stopped or plan.reason in NO_TRAINERS_WANTED:
                continue
            if not job.managed:
                unmanaged.add(job.uid)
            trainers = cluster.live_trainers(job)
            running = (p for p in trainers.pods if p.phase is Phase.RUNNING and p.node in reachable)
            minimum = max(1, job.min_trainers)
            count = sum(1 for _ in islice(running, minimum))  # more would not change the result
            had_minimum = self._started.get(job.uid, count > 0)
            started[job.uid] = had_minimum or trainers.running >= minimum
            if started[job.uid] and count < job.min_trainers:
                below[plan.reason] += 1
        self.unmanaged_total += len(unmanaged - self._unmanaged)
        self._started, self._unmanaged = started, unmanaged
        return below
