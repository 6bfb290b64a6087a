"""What came of creating trainers, as the next plan needs it (`policy.planning.creation_backoff`)."""

from collections.abc import Iterable

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job
from policy.names import Tier
from policy.planning.recent_history import RecentHistory
from reconciler.jobs.status import WAITING
from reconciler.trainers.controller import CreationResult


def record(
    results: Iterable[CreationResult], history: RecentHistory, cluster: ClusterState, now_s: float
) -> None:
    """Records for each job once whether the API server took its new trainers.

    Args:
        results: All results of one plan, one for each job and tier.
        history: Receives them.
        cluster: Contains the created trainers already.
        now_s: Seconds since the epoch.
    """
    results_by_job: dict[str, list[CreationResult]] = {}
    for result in results:
        results_by_job.setdefault(result.job.uid, []).append(result)
    for uid, of_job in results_by_job.items():
        created = sum(result.created for result in of_job)
        job = of_job[0].job
        trainers = len(cluster.trainers(job))
        incomplete = any(result.refused for result in of_job if result.tier is Tier.GUARANTEED)
        error = next((result.error for result in of_job if result.error), "")
        starts = trainers == created or not _had_minimum(job)
        if error or created:
            in_vain = 0
            if incomplete and starts and trainers < job.min_trainers:
                in_vain = trainers + len(cluster.servers_of(job))
            if not created and any(result.tier is Tier.GUARANTEED for result in of_job):
                history.cancel_gains(uid)
            history.record_creation(uid, error, trainers=trainers, in_vain=in_vain, now_s=now_s)


def _had_minimum(job: Job) -> bool:
    """Whether a job has had its minimum since its start, as its status says after a restart too.

    It has not where it has been waiting since then.
    """
    status = job.status
    waits_s = [c.time_s for c in status.conditions if c.type == WAITING and c.status == "True"]
    return status.start_s > 0 and not any(at_s <= status.start_s for at_s in waits_s)
