"""Rule 10, parameter servers: those of jobs that run are kept, before anybody else gets room.

Without one of its servers a job stands still, so a missing one is made again under the same index,
even at the cost of a trainer of its own. The first ones come with the first trainers, all or nothing
(`policy.rules.admission`), and the last trainer goes before they do (docs/decisions/0013).
"""

from policy.decisions import Figure
from policy.planning import Retire
from policy.reasons import Reason
from policy.rules import giving, placing
from policy.rules.placing import Place
from policy.snapshot import Pod, Servers
from policy.work import Share, Work


def keep(work: Work) -> None:
    """Retires servers that have ended, are lost or not wanted any more; takes room for missing ones."""
    for share in work.shares:
        pods = work.index.servers_of(share.job)
        if share.stopped:
            _end(work, share, pods)
        elif share.grows and share.serving and share.job.servers is not None:
            _retire_lost(work, share, pods)
            _restore(work, share, share.job.servers, pods)


def start(work: Work, share: Share, trainers: int) -> list[Place] | None:
    """Places for the servers that a job starts with, beside so many trainers; their room is taken.

    Returns:
        None where there are not enough of them, or the quotas do not allow them and the trainers.
    """
    wanted, count = share.job.servers, share.unserved
    if wanted is None or not count:
        return []
    if not work.quotas.allow(share.job, trainers, count):
        return None
    places: list[Place] = []
    for _ in range(count):
        place = _find(work, share, wanted)
        if place is None:
            placing.give_back(work, places)
            return None
        places.append(place)
    work.quotas.take(share.job, 0, count)
    return places


def call_off(work: Work, share: Share, places: list[Place]) -> None:
    """Undoes `start`."""
    placing.give_back(work, places)
    work.quotas.take(share.job, 0, -len(places))


def begin(work: Work, share: Share, places: list[Place]) -> None:
    """The job starts with them: from now on they count as its."""
    placing.settle(work, places)
    share.serving += len(places)
    share.serves.update(enumerate(place.node for place in places))


def _find(work: Work, share: Share, wanted: Servers) -> Place | None:
    return placing.find(work, wanted.requests, share.job.constraints, pooled=False)


def _end(work: Work, share: Share, pods: list[Pod]) -> None:
    """Once the last trainer has ended: until then somebody may fetch the parameters."""
    trainers = work.index.members.get(share.key, {}).values()
    if any(not pod.terminal and pod.owner_uid == share.job.uid for pod in trainers):
        return
    for pod in pods:
        if not pod.deleting:
            work.retires.append(_retire(share, pod, Reason.JOB_STOPPED))


def _retire_lost(work: Work, share: Share, pods: list[Pod]) -> None:
    """Pods that will not serve again, and whose name the next one needs."""
    for pod in pods:
        lost = _is_lost(work, pod)
        if lost or (pod.terminal and not pod.deleting):
            work.retires.append(_retire(share, pod, Reason.SERVER_MOVES, lost=lost))


def _is_lost(work: Work, pod: Pod) -> bool:
    """Whether its node does not answer: Kubernetes itself would wait five minutes, and longer."""
    node = work.index.nodes.get(pod.node)
    return node is not None and not node.ready


def _retire(share: Share, pod: Pod, reason: Reason, *, lost: bool = False) -> Retire:
    return Retire(share.key, pod.uid, pod.namespace, pod.name, reason, lost)


def _restore(work: Work, share: Share, wanted: Servers, pods: list[Pod]) -> None:
    """Takes room for every server that does not stand; makes those whose name is free.

    The room of one that is about to come back is for nobody else meanwhile.
    """
    named = {pod.server for pod in pods}
    standing = {
        pod.server for pod in pods if not (pod.terminal or pod.deleting or _is_lost(work, pod))
    }
    for number in range(wanted.count):
        if number in standing:
            continue
        place = _find(work, share, wanted)
        if place is not None:
            placing.settle(work, [place])
        node = place.node if place is not None else _make_way(work, share, wanted, number)
        if node and number not in named:
            share.serves[number] = node


def _make_way(work: Work, share: Share, wanted: Servers, number: int) -> str:
    """The node that trainers of the job itself leave for a server; "" where that does not help."""
    node, leaving = giving.way(work, share, wanted.requests, pooled=False, carriers=False)
    for pod in leaving:
        figures: dict[str, Figure] = {"new_node": node, "server": number}
        work.release(share, pod, Reason.SERVER_MOVES, figures)
    if leaving:
        work.room.take(node, wanted.requests)
        work.load.take(wanted.requests)
    return node
