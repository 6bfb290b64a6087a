"""Updates the trainer accounting of a job: each id is counted in exactly one sum when its pod ends.

The sum depends on why the pod ended: disrupted, or released by EDL, never counts as failed. Pure.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import Protocol

from policy.cluster import failure_policy
from policy.cluster.failure_rules import FailureAction, FailureRule
from policy.cluster.live_trainers import failed_at_start
from policy.cluster.snapshot import Pod, TrainerAccounting
from policy.planning.node_failures import Blame

FORGET_FAILURES_S = 600.0
"""Failures further apart than this are not "in a row"."""


class ReleasedPods(Protocol):
    """A record of the pods that EDL released."""

    def was_released(self, uid: str) -> bool:
        """Whether EDL released the pod."""


def _stamped_end(pod: Pod) -> float:
    """When a pod's containers ended, by its kubelet's clock."""
    return pod.ended_s


def count_endings(
    accounting: TrainerAccounting,
    pods: Iterable[Pod],
    *,
    deleted_pods: Iterable[Pod],
    released: ReleasedPods,
    pending_ids: Container[int],
    master: bool = False,
    rules: tuple[FailureRule, ...] = (),
    min_trainers: int = 0,
    ended_s: Callable[[Pod], float] = _stamped_end,
) -> TrainerAccounting:
    """The accounting after the endings that the given pods show.

    Args:
        accounting: As it stands.
        pods: All existing trainer pods of the job, ended ones included.
        deleted_pods: Trainer pods deleted since the accounting was written, as last seen.
        released: A record of the pods that EDL released.
        pending_ids: Reserved ids whose pods are still to be created; they are not missing.
        master: Whether the job has a master, which alone reports its end. A trainer that succeeds
            then counts for the back-off like a failure: if its master still has work, the
            replacement is delayed.
        rules: The job's rules about failed trainers. A failure that they ignore counts as disrupted,
            and delays the next trainer nevertheless.
        min_trainers: The job's minimum: while it runs, failures of surplus do not end the job.
        ended_s: When a pod's containers ended, by the clock that decides when the next is created.

    An open id whose pod neither exists nor is pending has been disrupted: its node or somebody else
    removed it before its end was seen. A pod whose id is not in the accounting (it was edited, or
    lost) opens that id again, so `next_id` never falls behind.
    """
    by_id = {pod.trainer_id: pod for pod in pods if pod.trainer_id >= 0}
    highest = max(by_id, default=-1)
    if highest >= accounting.next_id:
        unknown = {i for i in by_id if i >= accounting.next_id}
        accounting = replace(accounting, next_id=highest + 1, open=accounting.open | unknown)
    deleted_by_id = {pod.trainer_id: pod for pod in deleted_pods}
    blame = Blame([*by_id.values(), *deleted_by_id.values()])
    endings = Counter[str]()
    closed: set[int] = set()
    for trainer_id in sorted(accounting.open):
        pod = by_id.get(trainer_id) or deleted_by_id.get(trainer_id)
        if pod is not None:
            if pod.terminal or trainer_id in deleted_by_id:
                ending = _ending(pod, released)
                excused = ending == "failed" and blame.excuses(pod, min_trainers)
                accounting, counted_as = _judge(accounting, pod, ending, rules, excused=excused)
                endings[counted_as] += 1
                closed.add(trainer_id)
                if _delays_next(pod, ending, master=master) and not blame.repeats(pod):
                    accounting = _delay(accounting, ended_s(pod))
        elif trainer_id not in pending_ids:
            endings["disrupted"] += 1
            closed.add(trainer_id)
    sums = {name: getattr(accounting, name) + count for name, count in endings.items()}
    return replace(accounting, open=accounting.open - closed, **sums) if closed else accounting


def _ending(pod: Pod, released: ReleasedPods) -> str:
    """The sum that counts a pod which has ended, or was deleted before its end was seen."""
    if pod.succeeded:
        return "succeeded"
    if released.was_released(pod.uid):
        return "released"
    if pod.disrupted or pod.deleting or pod.rejected or not pod.terminal:
        return "disrupted"
    return "failed"


def _judge(
    accounting: TrainerAccounting,
    pod: Pod,
    ending: str,
    rules: tuple[FailureRule, ...],
    *,
    excused: bool,
) -> tuple[TrainerAccounting, str]:
    """What an ending means for the job, and the sum that counts the pod's id.

    An excused failure does not count towards the job's limit.
    """
    if ending == "failed":
        action, fatal = failure_policy.judge(rules, pod)
        accounting = replace(accounting, fatal=accounting.fatal or fatal)
        if action is FailureAction.IGNORE:
            ending = "disrupted"
        elif excused:
            accounting = replace(accounting, excused=accounting.excused + 1)
    return accounting, ending


def _delays_next(pod: Pod, ending: str, *, master: bool) -> bool:
    """Whether the next trainer has to wait: otherwise it might end like this one at once."""
    if ending == "disrupted":
        return pod.rejected and failed_at_start(pod)
    return ending == "failed" or (ending == "succeeded" and master)


def _delay(accounting: TrainerAccounting, ended_s: float) -> TrainerAccounting:
    """Delays the next trainer, the longer the more failures there were in a row."""
    in_row = ended_s - accounting.last_failure_s < FORGET_FAILURES_S
    return replace(
        accounting,
        failures_in_row=accounting.failures_in_row + 1 if in_row else 1,
        last_failure_s=max(accounting.last_failure_s, ended_s),
    )
