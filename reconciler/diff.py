"""From a plan to actions. Pure: what differs between what should be and what is."""

from collections.abc import Mapping

from policy.planning import Plan
from policy.snapshot import Job
from reconciler.actions import Action, LetGo, MakeTrainers, SetParallelism


def actions(plan: Plan, jobs: Mapping[str, Job]) -> tuple[Action, ...]:
    """What to do, releases before creations: they give room back sooner.

    Args:
        plan: For the jobs.
        jobs: Key -> job. A job run by the built-in controller gets its number moved and keeps
            the choice of pods: deleting its pods would count as failures of the Job.
    """
    ours = {key for key, job in jobs.items() if job.managed}
    let_go = [LetGo(release) for release in plan.releases if release.job in ours]
    made = [
        MakeTrainers(create.job, create.tier, create.nodes, create.reason, create.master)
        for create in plan.creates
        if create.job in ours
    ]
    moved = [
        SetParallelism(wanted.key, wanted.target, f"{wanted.reason}: {wanted.detail}")
        for wanted in plan.jobs
        if (job := jobs.get(wanted.key)) is not None
        and not job.managed
        and not (job.over or job.suspended or job.error)
        and job.parallelism != wanted.target
    ]
    return (*let_go, *moved, *made)
