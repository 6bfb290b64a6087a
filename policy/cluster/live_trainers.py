"""The live trainers of one job: sorted and counted once, and cached until a trainer changes.

A plan looks at every job many times; between two plans few trainers change.
`policy.cluster.cluster_state` caches one `LiveTrainers` for each job.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from policy.cluster.snapshot import Job, Phase, Pod
from policy.names import Role, Tier

_TIER_ORDER = {Tier.SURPLUS: 0, Tier.GUARANTEED: 1, Tier.SUPPORT: 2}
_FOREIGN = 3
_TRAINER_ID = attrgetter("trainer_id")
MAX_UNCOMMITTED_S = 30 * 86_400.0
"""Cap on reported uncommitted seconds: masters run users' code, and the value is part of sums over all jobs."""
START_S = 30.0
"""A trainer that fails within this time after its containers start counts as failed at its start."""


@dataclass(frozen=True, slots=True)
class LiveTrainers:
    """The trainers of one Job object that are bound or waiting and not being deleted."""

    pods: tuple[Pod, ...] = ()
    """The trainers in order of `loss`: surplus first, and surplus without a node before other surplus."""
    surplus: int = 0
    """Number of surplus trainers, which come first in `pods`."""
    waiting: int = 0
    """Number of surplus trainers without a node, which come before all others in `pods`."""
    guaranteed: tuple[Pod, ...] = ()
    excess: frozenset[str] = frozenset()
    """uids of surplus trainers whose label says that they are guaranteed; see `with_excess`."""
    pending: tuple[Pod, ...] = ()
    """Trainers without a node that were created so that an autoscaler adds nodes."""
    running: int = 0
    """Number of trainers whose containers run."""
    leaving: int = 0
    """Number of trainers that are being deleted and have not ended; not in `pods`."""
    succeeded: bool = False
    """Whether a trainer has succeeded, which completes a job that has no master."""
    failed_at_start: tuple[Pod, ...] = ()
    """Ended trainers whose node may have been the cause."""
    newest: Pod | None = None
    """The trainer with the highest id among those that do not host the master: its sidecar would make
    the pod larger."""


def tier_rank(pod: Pod) -> int:
    """Returns 0 for a surplus pod, 1 for guaranteed, 2 for support, and 3 for a pod outside training."""
    if pod.role is None:
        return _FOREIGN
    if pod.tier is None:
        return 0 if pod.role is Role.TRAINER else 2
    return _TIER_ORDER[pod.tier]


def is_surplus(pod: Pod) -> bool:
    """Returns whether a pod is a surplus trainer, which is preempted first."""
    return pod.role is Role.TRAINER and pod.tier is Tier.SURPLUS


def failed_at_start(pod: Pod) -> bool:
    """Returns whether a pod failed by itself within seconds of its start; its node may be the cause."""
    ended = pod.phase is Phase.FAILED and pod.ran_s < START_S
    return ended and bool(pod.node) and not (pod.deleting or pod.disrupted)


def loss(pod: Pod) -> tuple[int, bool, bool, bool, float, float, int]:
    """Returns the key that sorts one job's trainers by the loss if they end, smallest loss first.

    Surplus trainers come first, and the master's host is the last of its tier. Among the others,
    trainers that do not run yet come first, then those with the least uncommitted work, then the
    youngest.
    """
    return (
        tier_rank(pod),
        pod.master,
        bool(pod.node),
        pod.ready,
        pod.uncommitted_s,
        -pod.started_s,
        -pod.trainer_id,
    )


def live_trainers(job: Job, pods: Iterable[Pod]) -> LiveTrainers:
    """Returns the live trainers of a job.

    Args:
        job: The job.
        pods: All pods with the job's label, or, if the built-in controller manages the job, all pods
            that the Job's uid owns. Pods of an earlier Job with the same name are ignored.
    """
    own = [pod for pod in pods if pod.owner_uid == job.uid]
    ended = [pod for pod in own if pod.terminal]  # few, so checking them costs little
    live = [pod for pod in own if not (pod.deleting or pod.terminal)]
    leaving = len(own) - len(ended) - len(live)
    if not job.managed:
        live = _tiered(job, live)
    live.sort(key=loss)
    surplus = sum(map(is_surplus, live))
    return LiveTrainers(
        pods=tuple(live),
        surplus=surplus,
        waiting=sum(1 for pod in live[:surplus] if not pod.node),
        guaranteed=tuple(pod for pod in live if pod.tier is Tier.GUARANTEED),
        pending=tuple(pod for pod in live if pod.node_request and not pod.node),
        running=sum(1 for pod in live if pod.phase is Phase.RUNNING),
        leaving=leaving,
        newest=max((pod for pod in live if not pod.master), key=_TRAINER_ID, default=None),
        failed_at_start=tuple(pod for pod in ended if job.managed and failed_at_start(pod)),
        succeeded=job.managed
        and not job.edl_master
        and (job.accounting.succeeded > 0 or any(pod.succeeded for pod in ended)),
    )


def have_same_trainers(old: Job, new: Job) -> bool:
    """Returns whether `live_trainers` gives the same result for two versions of a Job with the same pods."""
    if (old.uid, old.managed, old.edl_master) != (new.uid, new.managed, new.edl_master):
        return False
    same_minimum = new.managed or old.min_trainers == new.min_trainers
    return same_minimum and (old.accounting.succeeded > 0) == (new.accounting.succeeded > 0)


def with_excess(job: Job, trainers: LiveTrainers, lasting: Sequence[Pod]) -> LiveTrainers:
    """Returns the trainers; guaranteed ones above the job's minimum count as surplus.

    A job has such trainers if its minimum was lowered, or if trainers were replaced while their nodes
    were closed and the nodes opened again. The label and priority of an existing pod cannot be changed.

    Args:
        job: The job; its minimum is unknown while its annotations are invalid.
        trainers: The job's live trainers.
        lasting: The guaranteed trainers that need no replacement, in order of loss.
    """
    count = len(lasting) - job.min_trainers
    if count <= 0 or job.error or not job.managed:
        return trainers
    excess = frozenset(pod.uid for pod in lasting[:count])
    return replace(_with_surplus(trainers, excess), excess=excess)


def not_to_replace(
    job: Job, trainers: LiveTrainers, is_stranded: Callable[[Pod], bool]
) -> list[Pod]:
    """Returns the guaranteed trainers that need no replacement, in order of loss.

    Trainers on drained or lost nodes need a replacement until the job has its minimum without them.
    From then on they are the first ones to be released (docs/decisions/0073).

    Args:
        job: The job.
        trainers: Its live trainers.
        is_stranded: Whether a trainer is on a node that is drained or lost.
    """
    others = [pod for pod in trainers.guaranteed if not is_stranded(pod)]
    if len(others) == len(trainers.guaranteed):
        return others
    if sum(pod.phase is Phase.RUNNING for pod in others) < job.min_trainers:
        return others
    return [*filter(is_stranded, trainers.guaranteed), *others]


def with_minimum(job: Job, trainers: LiveTrainers, covered_min: int) -> LiveTrainers:
    """Returns the trainers; pods of the built-in controller above a covered minimum count as surplus.

    The controller's pods have no tier: `live_trainers` counts the Job's whole minimum as guaranteed.
    """
    count = len(trainers.guaranteed) - covered_min
    if count <= 0 or job.managed:
        return trainers
    return _with_surplus(trainers, frozenset(pod.uid for pod in trainers.guaranteed[:count]))


def _with_surplus(trainers: LiveTrainers, uids: frozenset[str]) -> LiveTrainers:
    """Returns the trainers; the guaranteed ones with these uids count as surplus."""
    pods = [replace(p, tier=Tier.SURPLUS) if p.uid in uids else p for p in trainers.pods]
    pods.sort(key=loss)
    surplus = trainers.surplus + len(uids)
    return replace(
        trainers,
        pods=tuple(pods),
        surplus=surplus,
        waiting=sum(1 for pod in pods[:surplus] if not pod.node),
        guaranteed=tuple(pod for pod in trainers.guaranteed if pod.uid not in uids),
    )


def _tiered(job: Job, live: Iterable[Pod]) -> list[Pod]:
    """Gives pods of the built-in controller a tier: the oldest `min` are guaranteed."""
    oldest = sorted(live, key=lambda pod: (not pod.node, pod.created_s, pod.uid))
    return [
        replace(
            pod,
            role=Role.TRAINER,
            tier=Tier.GUARANTEED if number < job.min_trainers else Tier.SURPLUS,
        )
        for number, pod in enumerate(oldest)
    ]
