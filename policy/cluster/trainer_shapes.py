"""The shapes of trainers in use, by which nodes are packed."""

from collections import Counter
from collections.abc import Iterable

from policy.cluster import amounts
from policy.cluster.live_trainers import LiveTrainers
from policy.cluster.placement import Packing
from policy.cluster.snapshot import Job, Resources


def packing(jobs: Iterable[tuple[Job, LiveTrainers]], total: Resources) -> Packing:
    """The packing for the trainers of these jobs, the most requested shape first.

    Args:
        jobs: The jobs, with their live trainers.
        total: Allocatable of the cluster.
    """
    requested: Counter[tuple[tuple[str, int], ...]] = Counter()
    for job, trainers in jobs:
        if not job.over and not job.error:
            requested[tuple(sorted(_shape(job, trainers).items()))] += job.max_trainers
    shapes = sorted(requested, key=lambda shape: (-requested[shape], shape))
    return Packing([dict(shape) for shape in shapes], total)


def _shape(job: Job, trainers: LiveTrainers) -> Resources:
    """What one trainer of a job requests, as the newest shows where that is more than is known.

    Only the reconciler asks the API server before the first; the extender learns it from that one.
    """
    newest = trainers.newest
    return job.requests if newest is None else amounts.largest(job.requests, newest.requests)
