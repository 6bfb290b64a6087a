"""Counts the pods of TrainingJobs by role, as planned and as running.

The control loop counts on its thread and `reconciler.jobs.training_jobs` reads on another. Each tick
replaces the values instead of changing them, so no lock is needed.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job
from policy.planning.plan import JobPlan, Plan


@dataclass(frozen=True, slots=True)
class RoleCount:
    """Pods of one role: the planned number, those that are ready, and those that failed."""

    desired: int
    ready: int
    failed: int


@dataclass(frozen=True, slots=True)
class JobRoles:
    """The roles of one job, except for trainers, which the Job's own status counts."""

    trainers: int
    """Number of trainers in the newest plan."""
    servers: RoleCount | None = None
    master: RoleCount | None = None
    plan: JobPlan | None = field(default=None, compare=False)
    """The job's part of that plan. It is not compared, so new figures alone do not count as a change."""

    @property
    def reason(self) -> str:
        """Why the plan gives the job no more trainers, in words."""
        return "" if self.plan is None else self.plan.detail_for_owner


class RoleCounts:
    """The role counts of the jobs that a reader has asked for."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called on the loop's thread when values have changed; set by the reader."""
        self.job_uids: Collection[str] = frozenset()
        """uids of the Jobs to count; set by the reader."""
        self.of_job: Mapping[str, JobRoles] = {}
        """Job uid -> its roles."""

    def update(self, cluster: ClusterState, plan: Plan) -> None:
        """Counts again. Called on the loop's thread."""
        job_uids = self.job_uids
        of_job = {
            job.uid: JobRoles(
                trainers=job_plan.target,
                servers=_servers(cluster, job),
                master=_master(cluster, job),
                plan=job_plan,
            )
            for job_plan in (plan.jobs if job_uids else ())
            if (job := cluster.jobs.get(job_plan.key)) is not None and job.uid in job_uids
        }
        if of_job != self.of_job:
            self.of_job = of_job
            self.on_change()


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
