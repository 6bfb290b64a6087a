"""How much of each job's minimum its queue's nominal quota covers.

Minimums do not borrow (`policy.planning.borrowing`), and tenants can raise a minimum while the job runs. The
uncovered part of a minimum counts as surplus, whatever the Job says, so that no edit turns borrowed trainers
into guaranteed ones. All rules read `JobEntry.covered_min`, which starts with this count (docs/decisions/0053).
"""

from collections.abc import Callable

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Pod
from policy.planning.quotas import Quotas


def claim(
    quotas: Quotas, cluster: ClusterState, is_stranded: Callable[[Pod], bool]
) -> dict[str, int]:
    """Counts the minimums of running jobs against the nominal quotas of their queues.

    Guaranteed trainers and parameter servers count first, even above the quota: they are promised, and
    none of them is released for the quota. What remains of the quota goes, oldest job first, to trainers
    that stand in for guaranteed ones: surplus, trainers to be replaced, and trainers of the built-in
    controller, which have no tier.

    Args:
        quotas: The quotas, without any claims yet.
        cluster: The cluster.
        is_stranded: Returns whether a guaranteed trainer must be replaced because of its node.

    Returns:
        Job key -> number of its trainers that count, for jobs in queues that lend.
    """
    jobs = [job for job in cluster.jobs.values() if quotas.borrowing.covers(job.queue)]
    claimed = {job.key: 0 for job in jobs}
    running = [job for job in jobs if not job.stopped]
    for job in running:
        if job.managed:
            guaranteed = cluster.live_trainers(job).guaranteed
            lasting = len(guaranteed) - sum(map(is_stranded, guaranteed))
            claimed[job.key] = min(lasting, job.min_trainers)
        quotas.claim(job, claimed[job.key], cluster.server_count(job))
    for job in sorted(running, key=lambda job: (job.created_s, job.key)):
        standing_in = min(len(cluster.trainers(job)), job.min_trainers) - claimed[job.key]
        count = quotas.room_for_minimum(job, standing_in, 0)
        quotas.claim(job, count, 0)
        claimed[job.key] += count
    return claimed
