"""What pods count against quotas: those that exist as they are, those to come as their job's shape.

A LimitRange, an injected sidecar, a RuntimeClass or a resize in place makes a pod larger than its
template. Requests go by their name, limits with the prefix of core/v1 `ResourceQuota`: limits.cpu.
"""

from collections.abc import Iterable

from policy.admission import sidecar
from policy.cluster import amounts
from policy.cluster.snapshot import Job, Pod, Resources

LIMITS = "limits."


def of_pod(job: Job, pod: Pod) -> Resources:
    """The amounts of a trainer or parameter server of a job.

    A master's sidecar is not counted: its host changes, and a quota that it could exceed would end
    trainers with each change.
    """
    if not pod.master:
        return with_limits(pod.requests, pod.limits)
    requests = dict(pod.requests)
    amounts.subtract(requests, sidecar.requests_of(job))
    return with_limits(requests, job.limits)


def of_pods(job: Job, pods: Iterable[Pod]) -> Resources:
    """The sum over trainers or parameter servers of a job."""
    total: dict[str, int] = {}
    for pod in pods:
        amounts.add(total, of_pod(job, pod))
    return total


def with_limits(requests: Resources, limits: Resources) -> Resources:
    """Requests and limits of one pod; where it has no limit, its request counts as its limit."""
    effective = {**requests, **limits}
    return {**requests, **{LIMITS + name: amount for name, amount in effective.items()}}
