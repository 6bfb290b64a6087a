"""Handles elastic Jobs whose pods the built-in Job controller owns: EDL sets only their `parallelism`. Pure.

A Job created while EDL's webhook is unavailable has no `managedBy`. EDL must not delete its pods: the
built-in controller would count them as failures of the Job.
"""

from collections.abc import Mapping
from dataclasses import replace

from policy.cluster.snapshot import Job
from policy.planning.plan import JobPlan, Plan


def managed_only(plan: Plan, jobs: Mapping[str, Job]) -> Plan:
    """Returns the plan with only those creations and releases that concern jobs whose pods EDL owns.

    Args:
        plan: The plan of all jobs.
        jobs: Job key -> job.
    """
    managed = {key for key, job in jobs.items() if job.managed}
    return replace(
        plan,
        creates=tuple(create for create in plan.creates if create.job in managed),
        releases=tuple(release for release in plan.releases if release.job in managed),
    )


def parallelism_changes(plan: Plan, jobs: Mapping[str, Job]) -> tuple[JobPlan, ...]:
    """Returns the plans of unmanaged jobs whose `parallelism` differs from the target."""
    return tuple(
        job_plan
        for job_plan in plan.jobs
        if (job := jobs.get(job_plan.key)) is not None
        and not job.managed
        and not (job.over or job.suspended or job.error)
        and job.parallelism != job_plan.target
    )
