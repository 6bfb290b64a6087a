"""Rule 9, masters: a job that asked for a master gets it back, even at the cost of a trainer.

A master is a sidecar and cannot be added to a living pod, so it comes with a new guaranteed
trainer. Mostly the one that carried it is missing and is replaced by rule 4. Where that rule makes
none, because no node has room or nobody is missing, a living trainer gives way here: without
their master the others would soon have nothing to do (docs/decisions/0009).
"""

from policy.names import Tier
from policy.reasons import Reason
from policy.rules import giving
from policy.rules.admission import backing_off
from policy.snapshot import Pod
from policy.work import Share, Work


def restore(work: Work) -> None:
    """Makes, or makes room for, the trainer that brings the master back where a job runs without."""
    for share in work.shares:
        if not (share.job.master and share.grows and share.live):
            continue
        carrier = work.index.carrier(share.job)
        if carrier is not None:
            _help(work, share, carrier)
        elif share.headless and not (share.creates[Tier.GUARANTEED] or backing_off(work, share)):
            _replace(work, share)


def _help(work: Work, share: Share, carrier: Pod) -> None:
    """Lets a carrier go whose node is lost, minutes before Kubernetes gives it up."""
    node = work.index.nodes.get(carrier.node)
    if carrier in work.roomless:
        _make_room(work, share, carrier)
    elif node is not None and not node.ready and carrier in share.live:
        work.release(share, carrier, Reason.MASTER_MOVES, {"lost_node": node.name})


def _make_room(work: Work, share: Share, carrier: Pod) -> None:
    """For one that is made already, and that somebody else took the room of."""
    node, leaving = giving.way(work, share, carrier.requests, pooled=True, carriers=True)
    _release(work, share, leaving, node)
    if leaving:
        work.room.take(node, carrier.requests)


def _replace(work: Work, share: Share) -> None:
    """One guaranteed trainer more, and at least one less of those that live."""
    job, requests = share.job, share.requests(first=True)
    node, _ = work.room.place(requests, job.constraints, pooled=True)
    leaving = share.live[:1] if node else []
    if not node:
        node, leaving = giving.way(work, share, requests, pooled=True, carriers=True)
    _release(work, share, leaving, node)
    if leaving:
        work.take(job, node, requests)
        share.make(Tier.GUARANTEED, [node])


def _release(work: Work, share: Share, leaving: list[Pod], node: str) -> None:
    for pod in leaving:
        work.release(share, pod, Reason.MASTER_MOVES, {"new_node": node})
