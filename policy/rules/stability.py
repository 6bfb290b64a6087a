"""Rule 6, stability: trainers move between jobs only for a clear gain, a few at a time.

A move ends trainers, so it must pay: the giver stays at or above the taker, the gap is wider
than the threshold, and the trainers have run for a while. Each move makes the two more equal,
so moves cannot go round in circles.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import takewhile

from policy import amounts, ceilings
from policy.crew import is_surplus, loss
from policy.decisions import Figure
from policy.index import job_key
from policy.planning import Futile, Wish
from policy.reasons import Reason
from policy.room import When
from policy.rules.sharing import free_slot
from policy.snapshot import Pod
from policy.work import Share, Work

_SLACK = 1e-9
"""Shares are sums of floats; equal ones may differ in the last digit."""
_MOST_LOOKS = 1_000
"""Nodes that one plan looks at for wishes that came to nothing before: some 15 ms."""
_WANTS = (Reason.NO_ROOM, Reason.RESERVE_HELD, Reason.QUOTA_REACHED)
"""Reasons that go away when another job has less."""


def rebalance(work: Work) -> None:
    """Moves trainers from jobs with much to jobs with little.

    Not while services take capacity back: they decide what there is to share. At most
    `work.moves` trainers are on the move at one time, but for one job's step to its next
    allowed size.
    """
    if work.burst:
        return
    leaving = sum(1 for pod in work.index.leaving.values() if is_surplus(pod))
    moves = work.moves - leaving
    poor = [
        (work.expected(share), share.key, share)
        for share in work.shares
        if share.reason in _WANTS and share.admitted
    ]
    heapify(poor)
    donors = _Donors(work)
    postponed = _postponed(work)
    helpless: dict[Wish, set[str]] = {}
    while moves > 0 and poor:
        *_, receiver = heappop(poor)
        wish = _wish(work, receiver)
        if wish in work.futile:
            continue
        if wish in postponed:
            work.futile[wish] = postponed[wish]
            work.postponed = True
            continue
        deal = _Deal(work, receiver, donors, helpless.setdefault(wish, set()))
        if not deal.found:
            work.futile[wish] = Futile(work.now_s, deal.cost)
        elif len(deal.gone) > moves and moves < work.moves:
            return  # others are on the move still; then this one
        else:
            deal.close()
            moves -= len(deal.gone)
            for donor in {share.key: share for share, _ in deal.gone}.values():
                donors.changed(donor)
            heappush(poor, (work.expected(receiver), receiver.key, receiver))


def _postponed(work: Work) -> dict[Wish, Futile]:
    """Wishes that came to nothing lately and are not looked into again by this plan.

    Those that wait longest are looked into first, as many as one plan has time for: on a cluster
    of some hundred nodes that is all of them.
    """
    left = _MOST_LOOKS
    postponed: dict[Wish, Futile] = {}
    futile = work.history.futile
    oldest_first = sorted(futile, key=lambda w: (futile[w].at_s, futile[w].looks, repr(w)))
    for place, wish in enumerate(oldest_first):
        left -= futile[wish].looks
        if place and left < 0:
            postponed[wish] = futile[wish]
    return postponed


class _Donors:
    """The jobs that have trainers to spare, the richest first."""

    def __init__(self, work: Work) -> None:
        self._work = work
        shares = (share for share in work.shares if share.spare and not share.stopped)
        self._entries = {share.key: self._entry(share) for share in shares}
        self._sorted = sorted(self._entries.values())

    def _entry(self, share: Share) -> tuple[float, str, Share]:
        return -self._work.expected(share), share.key, share

    def changed(self, share: Share) -> None:
        """Puts a donor that gave where it belongs now."""
        old = self._entries.pop(share.key)
        del self._sorted[bisect_left(self._sorted, old)]
        if share.spare:
            self._entries[share.key] = self._entry(share)
            insort(self._sorted, self._entries[share.key])

    def above(self, least: float) -> dict[str, Share]:
        """Job key -> those with at least so much, the richest first."""
        rich = takewhile(lambda entry: -entry[0] >= least, self._sorted)
        return {key: share for _, key, share in rich}


def _wish(work: Work, receiver: Share) -> Wish:
    """What a deal for a job depends on: where one fails, those of richer jobs fail too."""
    job = receiver.job
    shape = tuple(sorted(job.requests.items()))
    scope = work.quotas.scope(job)
    return shape, job.constraints, receiver.reason, _step(work, receiver), receiver.unit, scope


def _step(work: Work, receiver: Share) -> int:
    """How many trainers it lacks to its next allowed size; 0 where there is none."""
    wanted = receiver.count + receiver.expected
    return ceilings.next_size(work.policy, receiver.job, wanted) - wanted


class _Deal:
    """Enough trainers of richer jobs that one job reaches its next size.

    Nothing is done before `close`.
    """

    def __init__(self, work: Work, receiver: Share, donors: _Donors, helpless: set[str]) -> None:
        """Looks for it.

        Args:
            work: The plan so far.
            receiver: Who gets the trainers.
            donors: Who may give.
            helpless: Nodes that cannot help this wish; more are added. It stays true within a
                plan: receivers only become richer, so fewer and fewer may give.
        """
        self._work = work
        self._helpless = helpless
        self.cost = 0
        """How many nodes were looked at."""
        self._receiver = receiver
        self._requests = receiver.job.requests
        self._step = _step(work, receiver)
        gain = 1 + work.policy.stability.gain_threshold
        least = max(work.expected(receiver) * gain, work.expected(receiver, self._step))
        self._rich = donors.above(least - _SLACK)
        self._anywhere = bool(free_slot(work, receiver))
        """Whether room is not what it lacks, so that it matters little who goes."""
        self._plain = any(not donor.job.managed for donor in self._rich.values())
        """Whether some donors' trainers carry no role in the index."""
        self._helpful: set[str] = set()
        self._open = work.room.open_nodes(receiver.job.constraints, pooled=True)
        self._in_quota = work.quotas.allow(receiver.job, self._step)
        self._freed: dict[str, dict[str, int]] = {}
        self._given: Counter[str] = Counter()
        self._nodes: list[str] = []
        """Where the receiver's new trainers would run."""
        self.gone: list[tuple[Share, Pod]] = []
        """Who would go."""
        enough = self._step > 0 and any(self._seek(donor) for donor in self._rich.values())
        self.found = enough and self._allowed()

    def _seek(self, donor: Share) -> bool:
        """Takes what helps from one more donor, richest donors first; whether it is enough."""
        relieves = self._in_quota or self._work.quotas.relieves(
            self._receiver.job, self._step, donor.job
        )
        for pods in self._steps_down(donor) if relieves else ():
            self._offer(donor, pods)
            if len(self._nodes) == self._step:
                return True
        return False

    def _steps_down(self, donor: Share) -> Iterator[list[Pod]]:
        """The trainers that a donor would give together: one by one, or a whole step each time."""
        helpless = self._helpless
        old_enough = [
            pod
            for pod in donor.spare
            if pod.node not in helpless and self._helps(pod.node) and _movable(self._work, pod)
        ]
        while True:
            has = donor.count - self._given[donor.key]
            step = has - ceilings.floor_size(self._work.policy, donor.job, has - 1)
            if step < 1 or not self._may_give(donor, step):
                return
            if step == 1:
                left = [pod for pod in old_enough if not self._is_gone(pod)]
                yield from ([pod] for pod in left)
                return
            if len(old_enough) < step:
                return
            yield old_enough[:step]
            old_enough = old_enough[step:]

    def _helps(self, node: str) -> bool:
        """Whether the receiver would fit there if all that donors could give there went.

        Most nodes are out of the question for a shape; this is asked once for each.
        """
        if self._anywhere:
            return bool(node)
        if node not in self._helpful:
            self.cost += 1
            fits = self._fits_without_donors(node)
            (self._helpful if fits else self._helpless).add(node)
            return fits
        return True

    def _fits_without_donors(self, node: str) -> bool:
        work = self._work
        if node not in self._open or node in work.cooling:
            return False
        if not amounts.within(self._requests, work.room.after(node, When.RECLAIMED)):
            return False
        if self._plain:
            return True
        room = work.room.later(node)
        for pod in work.index.bound.get(node, {}).values():
            if is_surplus(pod) and not pod.deleting and pod.uid not in work.released:
                donor = self._rich.get(job_key(pod))
                if donor is not None and _movable(work, pod):
                    amounts.add(room, pod.requests)
        return amounts.within(self._requests, room)

    def _may_give(self, donor: Share, count: int) -> bool:
        """Whether the move makes the two more equal: the giver stays at or above the taker."""
        if donor is self._receiver:
            return False
        after = self._work.expected(donor, -self._given[donor.key] - count)
        return after >= self._work.expected(self._receiver, self._step) - _SLACK

    def _is_gone(self, pod: Pod) -> bool:
        return any(other is pod for _, other in self.gone)

    def _offer(self, donor: Share, pods: list[Pod]) -> None:
        """Takes trainers into the deal if room for the receiver comes of it."""
        if any(self._is_gone(pod) for pod in pods) or not self._may_give(donor, len(pods)):
            return
        gone = [(donor, pod) for pod in pods]
        for pod in () if self._anywhere else pods:
            gone += self._beside(pod, gone)
        self._add(gone, 1)
        before = len(self._nodes)
        while len(self._nodes) < self._step and (node := self._slot(pods)):
            self._nodes.append(node)
        if len(self._nodes) == before:
            self._add(gone, -1)

    def _beside(self, pod: Pod, gone: list[tuple[Share, Pod]]) -> list[tuple[Share, Pod]]:
        """Further small trainers on a node that must go with one before a large one fits."""
        room = self._room(pod.node)
        taken = {id(other) for _, other in gone}
        for _, other in gone:
            if other.node == pod.node:
                amounts.add(room, other.requests)
        more: list[tuple[Share, Pod]] = []
        if amounts.within(self._requests, room):
            return more
        for other in sorted(self._work.index.bound[pod.node].values(), key=loss):
            owner = self._work.owner(other) if is_surplus(other) else None
            if owner is None or id(other) in taken or other.uid in self._work.released:
                continue
            count = 1 + sum(share is owner for share, _ in [*gone, *more])
            if self._is_gone(other) or not self._gives_one(owner, other, count):
                continue
            more.append((owner, other))
            amounts.add(room, other.requests)
            if amounts.within(self._requests, room):
                return more
        return []

    def _gives_one(self, owner: Share, pod: Pod, count: int) -> bool:
        """Whether a job may lose `count` trainers one by one, this one among them."""
        has = owner.count - self._given[owner.key] - count
        return (
            not pod.deleting
            and _movable(self._work, pod)
            and has >= owner.job.min_trainers
            and ceilings.floor_size(self._work.policy, owner.job, has) == has
            and self._may_give(owner, count)
        )

    def _slot(self, pods: list[Pod]) -> str:
        """Where one more trainer of the receiver fits now; "" for nowhere."""
        for pod in pods:
            usable = pod.node in self._open and pod.node not in self._work.cooling
            if usable and amounts.within(self._requests, self._room(pod.node)):
                return pod.node
        if self._nodes or not any(pod.node for pod in pods):
            return ""
        return free_slot(self._work, self._receiver)

    def _room(self, node: str) -> dict[str, int]:
        room = self._work.room.later(node)
        amounts.add(room, self._freed.get(node, {}))
        for taken in self._nodes:
            if taken == node:
                amounts.subtract(room, self._requests)
        return room

    def _add(self, gone: list[tuple[Share, Pod]], sign: int) -> None:
        for donor, pod in gone:
            freed = self._freed.setdefault(pod.node, {})
            (amounts.add if sign > 0 else amounts.subtract)(freed, pod.requests)
            self._given[donor.key] += sign
        self.gone = self.gone + gone if sign > 0 else self.gone[: -len(gone)]

    def _allowed(self) -> bool:
        """Whether quotas and reserve hold once it is done."""
        work, job = self._work, self._receiver.job
        freed: dict[str, int] = {}
        for donor, pod in self.gone:
            amounts.add(freed, pod.requests)
            work.quotas.take(donor.job, -1)
        allowed = work.quotas.allow(job, self._step)
        for donor, _ in self.gone:
            work.quotas.take(donor.job)
        return allowed and work.load.allow_later(job.requests, freed, self._step)

    def close(self) -> None:
        """Releases the givers' trainers and keeps their room for the receiver."""
        receiver = self._receiver
        for donor, pod in self.gone:
            figures: dict[str, Figure] = {
                "to": receiver.key,
                "to_trainers": receiver.count,
                "to_share": self._work.expected(receiver),
                "of": donor.key,
                "of_trainers": donor.count,
                "of_share": self._work.expected(donor),
            }
            self._work.release(donor, pod, Reason.FAIR_SHARE, figures)
        for node in self._nodes:
            self._work.expect(receiver, node)


def _movable(work: Work, pod: Pod) -> bool:
    age_s = work.now_s - (pod.started_s or pod.created_s)
    return bool(pod.node) and age_s >= work.policy.stability.min_run_seconds
