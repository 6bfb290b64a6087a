"""The amounts of pods that count against quotas.

An existing pod counts with its own amounts, a future pod with its job's. A LimitRange, an injected
sidecar, a RuntimeClass or an in-place resize can make a pod larger than its template. Requests are keyed
by the resource's name, limits with the prefix of core/v1 `ResourceQuota`, as in limits.cpu.
"""

from collections.abc import Iterable

from policy.admission import sidecar
from policy.cluster import amounts
from policy.cluster.snapshot import Job, Pod, Resources

LIMITS = "limits."


def of_pod(job: Job, pod: Pod) -> Resources:
    """Returns the amounts of a job's trainer or parameter server.

    The master's sidecar does not count: the master moves between trainers, and if the sidecar could
    exceed a quota, trainers would have to end with every move.
    """
    if not pod.master:
        return with_limits(pod.requests, pod.limits)
    requests = dict(pod.requests)
    amounts.subtract(requests, sidecar.requests_of(job))
    return with_limits(requests, job.limits)


def of_pods(job: Job, pods: Iterable[Pod]) -> Resources:
    """Returns the sum over a job's trainers or parameter servers."""
    total: dict[str, int] = {}
    for pod in pods:
        amounts.add(total, of_pod(job, pod))
    return total


def with_limits(requests: Resources, limits: Resources) -> Resources:
    """Returns one pod's requests and limits; for a resource without a limit, the request is the limit."""
    effective = {**requests, **limits}
    return {**requests, **{LIMITS + name: amount for name, amount in effective.items()}}
