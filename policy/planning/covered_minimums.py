"""How much of each job's minimum its queue's nominal quota covers.

Minimums do not borrow (`policy.planning.borrowing`), and a minimum can grow while the job runs: its annotation is
the tenant's word. What is not covered counts as surplus, whatever the Job says, so that no edit makes
a guarantee of what is borrowed. All rules ask for `JobEntry.covered_min`, which begins here
(docs/decisions/0053).
"""

from collections.abc import Callable

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Pod
from policy.planning.quotas import Quotas


def claim(
    quotas: Quotas, cluster: ClusterState, is_stranded: Callable[[Pod], bool]
) -> dict[str, int]:
    """Counts the minimums of running jobs against the nominal quotas of their queues.

    Guaranteed trainers and parameter servers count first, above the quota too: they are promised, and
    none ends for it. Then what stands in for guaranteed trainers as far as the quota goes, the oldest
    job first: surplus, trainers that are to be replaced, and those of the built-in controller,
    which have no tier of their own.

    Args:
        quotas: The quotas, of which nothing is claimed yet.
        cluster: The cluster.
        is_stranded: Whether a guaranteed trainer is to be replaced, because of its node.

    Returns:
        Job key -> number of its trainers that count, of jobs in queues that lend.
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
