"""Elastic Jobs whose pods the built-in Job controller owns: only their `parallelism` changes. Pure.

A Job is created without `managedBy` while EDL's webhook is away. EDL must not delete its pods:
the built-in controller would count that as failures of the Job.
"""

from collections.abc import Mapping
from dataclasses import replace

from policy.cluster.snapshot import Job
from policy.planning.plan import JobPlan, Plan


def managed_only(plan: Plan, jobs: Mapping[str, Job]) -> Plan:
    """The plan with the creations and releases of those jobs alone whose pods EDL owns.

    Args:
        plan: For all jobs.
        jobs: Key -> job.
    """
    managed = {key for key, job in jobs.items() if job.managed}
    return replace(
        plan,
        creates=tuple(create for create in plan.creates if create.job in managed),
        releases=tuple(release for release in plan.releases if release.job in managed),
    )


def parallelism_changes(plan: Plan, jobs: Mapping[str, Job]) -> tuple[JobPlan, ...]:
    """Plans of unmanaged jobs whose `parallelism` differs from the target."""
    return tuple(
        job_plan
        for job_plan in plan.jobs
        if (job := jobs.get(job_plan.key)) is not None
        and not job.managed
        and not (job.over or job.suspended or job.error)
        and job.parallelism != job_plan.target
    )
