"""The sizes of a job: the numbers of trainers that both the policy and the job allow."""

from fnmatch import fnmatchcase

from policy.cluster.snapshot import Job
from policy.document.model import Policy


def next_size(policy: Policy, job: Job, trainers: int) -> int:
    """Returns the smallest allowed number of trainers above `trainers`, or `trainers` if there is none."""
    rule = _sizes(policy, job)
    upper = job.max_trainers
    if rule is None:
        return min(trainers + 1, max(upper, trainers))
    return next((size for size in rule if trainers < size <= upper), trainers)


def floor_size(policy: Policy, job: Job, trainers: int) -> int:
    """Returns the largest allowed number of trainers at or below `trainers`, never below min."""
    rule = _sizes(policy, job)
    capped = min(trainers, job.max_trainers)
    if rule is None or capped <= job.min_trainers:
        return capped
    return max((size for size in rule if size <= capped), default=job.min_trainers)


def _sizes(policy: Policy, job: Job) -> tuple[int, ...] | None:
    """Returns a job's allowed sizes, ascending and including min; None if all sizes are allowed.

    If both job and policy restrict the sizes, both must allow a size.
    """
    allowed = _allowed_by_policy(policy, job)
    if not job.sizes:
        return allowed
    low, upper = job.min_trainers, job.max_trainers
    own = {low} | {size for size in job.sizes if low < size <= upper}
    return tuple(sorted(own if allowed is None else own.intersection(allowed)))


def _allowed_by_policy(policy: Policy, job: Job) -> tuple[int, ...] | None:
    """Returns the sizes that the policy allows a job, including its minimum; None for all sizes."""
    for rule in policy.sizes:
        if not any(fnmatchcase(job.namespace, pattern) for pattern in rule.namespaces):
            continue
        upper = job.max_trainers
        if rule.allowed:
            sizes = set(rule.allowed)
        elif rule.powers_of_two:
            sizes = {1 << bit for bit in range(upper.bit_length())}
        else:
            sizes = set(range(rule.step, upper + 1, rule.step))
        return tuple(
            sorted({job.min_trainers} | {s for s in sizes if job.min_trainers < s <= upper})
        )
    return None
