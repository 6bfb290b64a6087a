"""Pods of TrainingJobs by role, as the newest plan wants them and as they are.

The control loop counts, on its thread; `reconciler.jobs.training_jobs` reads, on another: each tick puts
new values in place of the old ones, and changes none.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job
from policy.planning.plan import JobPlan, Plan


@dataclass(frozen=True, slots=True)
class RoleCount:
    """Pods of one role: how many there should be, are ready, and have ended without another."""

    desired: int
    ready: int
    failed: int


@dataclass(frozen=True, slots=True)
class JobRoles:
    """The roles of one job, without its trainers, which the Job's own status counts."""

    trainers: int
    """How many the newest plan wants."""
    servers: RoleCount | None = None
    master: RoleCount | None = None
    plan: JobPlan | None = field(default=None, compare=False)
    """Its part of that plan: new figures of the same number are no change."""

    @property
    def reason(self) -> str:
        """Why the plan wants no more trainers, in words."""
        return "" if self.plan is None else self.plan.detail_for_owner


class RoleCounts:
    """The roles of the jobs whose counts are read."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called on the loop's thread where values have changed; replaced by the reader."""
        self.job_uids: Collection[str] = frozenset()
        """uids of the Jobs whose roles are read; replaced by the reader."""
        self.of_job: Mapping[str, JobRoles] = {}
        """Job uid -> its roles."""

    def update(self, cluster: ClusterState, plan: Plan) -> None:
        """Counts once more; on the loop's thread."""
        job_uids = self.job_uids
        of_job = {
            job.uid: _roles(cluster, job, job_plan)
            for job_plan in (plan.jobs if job_uids else ())
            if (job := cluster.jobs.get(job_plan.key)) is not None and job.uid in job_uids
        }
        if of_job != self.of_job:
            self.of_job = of_job
            self.on_change()


def _roles(cluster: ClusterState, job: Job, job_plan: JobPlan) -> JobRoles:
    return JobRoles(job_plan.target, _servers(cluster, job), _master(cluster, job), job_plan)


def _servers(cluster: ClusterState, job: Job) -> RoleCount | None:
    if job.servers is None:
        return None
    pods = cluster.servers_of(job)
    ready = sum(1 for pod in pods if pod.ready and not (pod.deleting or pod.terminal))
    return RoleCount(cluster.server_count(job), ready, sum(1 for pod in pods if pod.terminal))


def _master(cluster: ClusterState, job: Job) -> RoleCount | None:
    if not job.master:
        return None
    host = cluster.master_host(job)
    ready = host is not None and host.ready and not host.terminal
    has_failed = host is not None and host.terminal
    return RoleCount(int(not job.stopped), int(ready), int(has_failed))
