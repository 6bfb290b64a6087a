"""Figures of jobs for metrics: by name for a bounded number of them, summed for the others. Pure."""

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
"""Namespace and name under which the jobs without a name of their own are summed."""


@dataclass(frozen=True, slots=True)
class JobFigures:
    """Figures of one job, or sums over several."""

    running: int
    """Trainers whose containers run."""
    target: int
    minimum: int
    share: float
    """Weighted share of the cluster at the planned number of trainers."""


def by_name(
    plans: Iterable[JobPlan], cluster: ClusterState, named: int
) -> dict[tuple[str, str], JobFigures]:
    """(namespace, name) -> figures, for the oldest `named` jobs; the others are summed as OTHERS.

    A job keeps its name until it ends, so that its series has no gaps.

    Args:
        plans: The newest plan of each job.
        cluster: Its state.
        named: The greatest number of names.
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
    """Remembers which jobs have had their minimum, so that one that lost it can be told."""

    def __init__(self) -> None:
        self._started: dict[str, bool] = {}
        """Job uid -> whether it has had its minimum."""
        self._unmanaged: set[str] = set()
        """uids of jobs that the built-in controller runs."""
        self.unmanaged_total = 0
        """Jobs that the built-in controller runs, because the webhook was away at their creation."""

    def below_minimum(
        self, plans: Iterable[JobPlan], cluster: ClusterState, now_s: float
    ) -> Mapping[Reason, int]:
        """Reason for the number of trainers -> jobs that have started and run fewer than their minimum.

        A job with running trainers that this process sees for the first time has started before. Pods of a
        lost node stay Running for minutes, and do not run; the job that has them has started.
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
            count = sum(1 for _ in islice(running, minimum))  # no more of them make a difference
            before = self._started.get(job.uid, count > 0)
            started[job.uid] = before or trainers.running >= minimum
            if started[job.uid] and count < job.min_trainers:
                below[plan.reason] += 1
        self.unmanaged_total += len(unmanaged - self._unmanaged)
        self._started, self._unmanaged = started, unmanaged
        return below
