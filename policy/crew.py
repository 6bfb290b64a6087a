"""The live trainers of one job, counted once and kept until one of them changes.

A plan looks at every job many times; between two plans few trainers change. `policy.index`
keeps one crew for each job.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from policy.names import Role, Tier
from policy.snapshot import Job, Phase, Pod

_TIER_ORDER = {Tier.SURPLUS: 0, Tier.GUARANTEED: 1, Tier.SUPPORT: 2}
_FOREIGN = 3


@dataclass(frozen=True, slots=True)
class Crew:
    """Trainers that belong to one very Job object, bound or waiting, not deleting."""

    live: tuple[Pod, ...] = ()
    """In order of `loss`: surplus first, and among them those without a node first."""
    surplus: int = 0
    """How many of them are surplus: the first so many."""
    waiting: int = 0
    """How many of the surplus have no node yet: the first so many."""
    guaranteed: tuple[Pod, ...] = ()
    succeeded: bool = False
    """One of its trainers ended well, which ends the work of a job that has no master."""


EMPTY = Crew()


def tier_rank(pod: Pod) -> int:
    """0 surplus, 1 guaranteed, 2 support, 3 no training pod at all."""
    if pod.role is None:
        return _FOREIGN
    if pod.tier is None:
        return 0 if pod.role is Role.TRAINER else 2
    return _TIER_ORDER[pod.tier]


def is_surplus(pod: Pod) -> bool:
    """Whether a pod is the first to give way."""
    return pod.role is Role.TRAINER and pod.tier is Tier.SURPLUS


def loss(pod: Pod) -> tuple[int, bool, bool, bool, float, float, int]:
    """Orders trainers of one job by what is lost with them; the least first.

    Surplus first, the one that carries the master last in its tier, then those that do not run
    yet, then the least uncommitted work, then the youngest.
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


def crew(job: Job, pods: Iterable[Pod]) -> Crew:
    """The crew of a job.

    Args:
        job: Whose.
        pods: All pods that carry its name, or, where the built-in controller has them, that
            its uid owns; those of an earlier Job of that name are left out.
    """
    own = [pod for pod in pods if pod.owner_uid == job.uid]
    live = [pod for pod in own if not pod.terminal and not pod.deleting]
    if not job.managed:
        live = _tiered(job, live)
    live.sort(key=loss)
    surplus = sum(1 for pod in live if is_surplus(pod))
    return Crew(
        live=tuple(live),
        surplus=surplus,
        waiting=sum(1 for pod in live[:surplus] if not pod.node),
        guaranteed=tuple(pod for pod in live if pod.tier is Tier.GUARANTEED),
        succeeded=job.managed
        and not job.master
        and any(pod.phase is Phase.SUCCEEDED for pod in own),
    )


def _tiered(job: Job, live: Iterable[Pod]) -> list[Pod]:
    """Pods of the built-in controller with the tiers they lack: its oldest `min` are guaranteed."""
    oldest = sorted(live, key=lambda pod: (not pod.node, pod.created_s, pod.uid))
    return [
        replace(
            pod,
            role=Role.TRAINER,
            tier=Tier.GUARANTEED if number < job.min_trainers else Tier.SURPLUS,
        )
        for number, pod in enumerate(oldest)
    ]
