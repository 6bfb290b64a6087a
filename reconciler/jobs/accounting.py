"""Updates a job's trainer accounting: when a pod ends, its id is counted in exactly one total.

The total depends on why the pod ended. A pod that was disrupted, or released by EDL, never counts as
failed. Pure.
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
"""Failures further apart than this do not count as consecutive."""


class ReleasedPods(Protocol):
    """Knows which pods EDL released."""

    def was_released(self, uid: str) -> bool:
        """Returns whether EDL released the pod."""


def _stamped_end(pod: Pod) -> float:
    """Returns when a pod's containers ended, by the clock of its kubelet."""
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
    """Returns the accounting after counting the pods that have ended.

    Args:
        accounting: The current accounting.
        pods: All existing trainer pods of the job, including those that have ended.
        deleted_pods: Trainer pods deleted since the accounting was written, as last seen.
        released: Knows which pods EDL released.
        pending_ids: Reserved ids whose pods are still to be created, so that their absence is expected.
        master: Whether the job has a master. Only the master then reports the end of the job, so a
            trainer that exits successfully counts like a failure for the back-off: if work is left,
            its replacement is delayed.
        rules: The job's failure rules. A failure that they ignore counts as disrupted, but still
            delays the next trainer.
        min_trainers: The job's minimum. While that many trainers are running, failures of surplus
            trainers do not end the job.
        ended_s: Returns when a pod's containers ended, by the clock that also decides when the next trainer
            is created.

    An open id that is not pending and has no pod counts as disrupted: the node was lost, or another
    client deleted the pod before its end was seen. A pod whose id is missing from the accounting
    (because the annotation was edited or lost) opens that id again, so `next_id` never falls behind.
    """
    by_id = {pod.trainer_id: pod for pod in pods if pod.trainer_id >= 0}
    highest = max(by_id, default=-1)
    # The accounting was edited or lost: reopen the ids of existing pods, so that none is used twice.
    if highest >= accounting.next_id:
        unknown = {i for i in by_id if i >= accounting.next_id}
        accounting = replace(accounting, next_id=highest + 1, open=accounting.open | unknown)
    deleted_by_id = {pod.trainer_id: pod for pod in deleted_pods}
    blame = Blame([*by_id.values(), *deleted_by_id.values()])
    endings = Counter[str]()
    closed: set[int] = set()
    # Close the open ids whose pods have ended or are gone. `blame` excuses failures that are more likely
    # a node's fault, and counts trainers that failed together because of one bad node as one failure.
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
    """Returns the total that counts a pod which has ended, or was deleted before its end was seen."""
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
    """Returns the accounting after applying the failure rules, and the total that counts the pod's id.

    An excused failure does not count toward the job's limit.
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
    """Returns whether the next trainer has to wait, because it would likely end the same way."""
    if ending == "disrupted":
        return pod.rejected and failed_at_start(pod)
    return ending == "failed" or (ending == "succeeded" and master)


def _delay(accounting: TrainerAccounting, ended_s: float) -> TrainerAccounting:
    """Delays the next trainer; the delay grows with the number of consecutive failures."""
    in_row = ended_s - accounting.last_failure_s < FORGET_FAILURES_S
    return replace(
        accounting,
        failures_in_row=accounting.failures_in_row + 1 if in_row else 1,
        last_failure_s=max(accounting.last_failure_s, ended_s),
    )
