"""Rule 1, services first: pods that outrank surplus count as placed before anything is shared.

kube-scheduler preempts for services by itself, one pod at a time, at some 25 pods a second. In
a burst that is the slowest part of a reclaim, so the plan releases ahead of it: all victims
that the waiting services need, at once (docs/decisions/0004).
"""

from heapq import heapify, heappop, heappush
from itertools import islice

from policy import amounts
from policy.crew import is_surplus
from policy.decisions import Figure
from policy.names import Role
from policy.reasons import Reason
from policy.room import When
from policy.snapshot import Constraints, Pod, Resources
from policy.victims import LOOK_AHEAD
from policy.work import Share, Work

_HELP_AGAIN_S = 10.0
"""After a release for a service, how long until the next one for it; doubles each time."""
_MOST_DOUBLINGS = 6

_Shape = tuple[tuple[tuple[str, int], ...], Constraints, Role | None, int, bool]

_Rank = tuple[float, float, float, float]
"""Trainers lost for each pod that then fits, how rich their jobs are, uncommitted work, age."""


def place(work: Work) -> None:
    """Takes room for waiting pods: nominated ones where they are, others where they would go.

    A pod that fits nowhere even without surplus asks for what training cannot give; it is left
    out, or it would hold all growth for ever.
    """
    groups: dict[_Shape, list[Pod]] = {}
    waiting = (pod for pod in work.index.waiting.values() if not pod.gated and not is_surplus(pod))
    for pod in sorted(waiting, key=lambda pod: (-pod.priority, pod.created_s, pod.key, pod.uid)):
        if pod.nominated in work.index.nodes:
            work.room.take(pod.nominated, pod.requests)
            work.load.take(pod.requests)
            work.burst = True
            continue
        shape = tuple(sorted(pod.requests.items()))
        key = (shape, pod.constraints, pod.role, pod.priority, pod.preempts)
        groups.setdefault(key, []).append(pod)
    for pods in groups.values():
        _place_alike(work, pods)


def _place_alike(work: Work, pods: list[Pod]) -> None:
    """Places pods of one shape: on free room, then on room that is coming, then by reclaim."""
    first = pods[0]
    left = _fill(work, first, len(pods), When.NOW)
    if not left:
        return
    without = _fill(work, first, left, When.LATER)
    if without:
        without = _Reclaim(work, pods[len(pods) - without :]).run()
        work.roomless += pods[len(pods) - without :]
    work.burst = work.burst or without < left


def _fill(work: Work, pod: Pod, count: int, when: When) -> int:
    """Puts up to `count` pods like `pod` where they spoil least; how many found no room.

    Where each goes in truth is kube-scheduler's business.
    """
    pooled = pod.role is Role.TRAINER
    while count and (
        node := work.room.slot(pod.requests, pod.constraints, pooled=pooled, when=when)
    ):
        work.room.take(node, pod.requests)
        work.load.take(pod.requests)
        count -= 1
    return count


class _Reclaim:
    """Room for services of one shape that surplus trainers must leave."""

    def __init__(self, work: Work, pods: list[Pod]) -> None:
        self._work = work
        self._pods = pods
        self._requests = pods[0].requests
        self._owner: dict[str, Share] = {}
        self._here: dict[str, list[Pod]] = {}
        """Node -> surplus trainers that may be taken there."""
        for share in work.shares:
            if not share.job.managed:
                for pod in share.surplus:
                    self._add(share, pod)

    def run(self) -> int:
        """Takes the room of as many pods as find some, and releases for those that are due.

        Returns:
            How many found none.
        """
        first = self._pods[0]
        pooled = first.role is Role.TRAINER
        open_nodes = self._work.room.open_nodes(first.constraints, pooled=pooled)
        heap = [
            (rank, name)
            for name in self._work.room.nodes_with(When.RECLAIMED)
            if name in open_nodes and (rank := self._first_rank(name)) is not None
        ]
        heapify(heap)
        while heap and self._pods:
            rank, name = heappop(heap)
            now = self._rank(name)
            if now is not None and now <= rank:
                self._take(name)
                now = self._rank(name)
            if now is not None:
                heappush(heap, (now, name))
        return len(self._pods)

    def _add(self, share: Share, pod: Pod) -> None:
        self._owner[pod.uid] = share
        self._here.setdefault(pod.node, []).append(pod)

    def _first_rank(self, name: str) -> _Rank | None:
        """The rank of a node that is looked at for the first time."""
        for pod in self._work.index.bound.get(name, {}).values():
            share = self._work.owner(pod) if is_surplus(pod) and not pod.deleting else None
            outranked = pod.priority < self._pods[0].priority
            if share is not None and outranked and pod.uid not in self._work.released:
                self._add(share, pod)
        return self._rank(name)

    def _victims(self, name: str) -> list[Pod] | None:
        """Who must leave a node for one more pod, the richest jobs first; None if all is not enough."""
        room = self._work.room.later(name)
        victims: list[Pod] = []
        for pod in sorted(self._here.get(name, ()), key=self._order):
            if amounts.within(self._requests, room):
                break
            amounts.add(room, pod.requests)
            victims.append(pod)
        return victims if amounts.within(self._requests, room) else None

    def _order(self, pod: Pod) -> tuple[bool, float, float, float, str]:
        """As `victims` orders them for kube-scheduler, so that both take the same."""
        return pod.master, -self._riches(pod), pod.uncommitted_s, -pod.started_s, pod.uid

    def _riches(self, pod: Pod) -> float:
        share = self._owner[pod.uid]
        return self._work.measure(share, share.count)

    def _rank(self, name: str) -> _Rank | None:
        """How good a node is; the lowest rank is the best."""
        victims = self._victims(name)
        if victims is None:
            return None
        richest = max((self._riches(pod) for pod in victims), default=0.0)
        lost_s = sum(pod.uncommitted_s for pod in victims)
        oldest = -min((pod.started_s for pod in victims), default=0.0)
        return self._lost_for_each(name, victims), -richest, lost_s, oldest

    def _lost_for_each(self, name: str, victims: list[Pod]) -> float:
        """As `victims` counts it for kube-scheduler: the best of sets of pods that may follow."""
        if not victims:
            return 0.0
        room = self._work.room.later(name)
        for pod in victims:
            amounts.add(room, pod.requests)
        best = len(victims) / self._fits(room)
        rest = (pod for pod in self._here[name] if pod not in victims)
        for more, pod in enumerate(islice(rest, LOOK_AHEAD), start=1):
            amounts.add(room, pod.requests)
            best = min(best, (len(victims) + more) / self._fits(room))
        return best

    def _fits(self, room: Resources) -> int:
        return max(1, min(len(self._pods), amounts.times(self._requests, room)))

    def _take(self, name: str) -> None:
        """Gives one pod its room on a node."""
        work, pod = self._work, self._pods.pop(0)
        victims = self._victims(name) or []
        work.room.take(name, self._requests)
        work.load.take(self._requests)
        if not victims or not self._due(pod):
            return
        figures: dict[str, Figure] = {"service": pod.key, "needs": pod.requests}
        for victim in victims:
            self._here[name].remove(victim)
            share = self._owner[victim.uid]
            work.release(share, victim, Reason.SERVICES_FIRST, figures)
        work.helped.add(pod.uid)

    def _due(self, pod: Pod) -> bool:
        """Whether trainers may be released for this pod: services, each time more patiently.

        A pod that does not take the room made for it waits for something else.
        """
        times, last_s = self._work.history.helped.get(pod.uid, (0, 0.0))
        patience_s = _HELP_AGAIN_S * 2.0 ** min(times - 1, _MOST_DOUBLINGS) if times else 0.0
        return pod.role is None and self._work.now_s - last_s >= patience_s
