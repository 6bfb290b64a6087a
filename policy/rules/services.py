"""Rule 1, services first: pods that outrank surplus count as placed before anything is shared."""

from policy import amounts
from policy.index import is_surplus
from policy.names import Role
from policy.reasons import Reason
from policy.snapshot import Pod
from policy.victims import loss
from policy.work import Work

_HELP_AGAIN_S = 10.0
"""A service that trainers were released for is given this long before more are."""


def place(work: Work) -> None:
    """Takes room for waiting pods: nominated ones where they are, others where they would go.

    A pod that fits nowhere even without surplus asks for what training cannot give; it is left
    out, or it would hold all growth for ever.
    """
    waiting = sorted(
        (pod for pod in work.index.waiting.values() if not pod.gated and not is_surplus(pod)),
        key=lambda pod: (-pod.priority, pod.created_s, pod.key, pod.uid),
    )
    hopeless: set[tuple[object, ...]] = set()
    for pod in waiting:
        if pod.nominated in work.room.now:
            work.room.take(pod.nominated, pod.requests)
            work.load.take(pod.requests)
            work.burst = True
            continue
        shape = (tuple(sorted(pod.requests.items())), pod.constraints, pod.role)
        if shape not in hopeless and not _place(work, pod):
            hopeless.add(shape)


def _place(work: Work, pod: Pod) -> bool:
    pooled = pod.role is Role.TRAINER
    node, reclaims = work.room.place(pod.requests, pod.constraints, pooled=pooled)
    if not node:
        return False
    work.room.take(node, pod.requests)
    work.load.take(pod.requests)
    if reclaims:
        work.burst = True
        if pod.role is None:
            _help(work, pod, node)
    return True


def _help(work: Work, pod: Pod, node: str) -> None:
    """Releases surplus for a service where kube-scheduler's preemption does not.

    That is: the service must not preempt, or the trainers are of a job that came in while the
    webhook was down, so that their priority is not ours.
    """
    if work.now_s - work.history.helped.get(pod.uid, 0.0) < _HELP_AGAIN_S:
        return
    room = work.room.later(node)
    here = [
        (share, victim)
        for share in work.shares
        for victim in share.surplus
        if victim.node == node and not (pod.preempts and victim.priority < pod.priority)
    ]
    for share, victim in sorted(here, key=lambda pair: loss(pair[1])):
        if all(amount >= 0 for amount in room.values()):
            return
        amounts.add(room, victim.requests)
        work.release(share, victim, Reason.SERVICES_FIRST, f"{pod.key} waits")
        work.helped.add(pod.uid)
