"""Rule 1, services first: reserves capacity for pods that outrank surplus before jobs share the rest.

kube-scheduler preempts for services by itself, one pod at a time, at about 25 pods a second. In a burst
that is the slowest part of a reclaim. So the plan releases all victims for the waiting services at once,
ahead of kube-scheduler (docs/decisions/0004).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import islice

from policy.backoff import pause_s
from policy.cluster import amounts
from policy.cluster.live_trainers import is_surplus
from policy.cluster.snapshot import Constraints, Pod, Resources
from policy.decisions import Figure
from policy.names import DEFAULT_SCHEDULER, Role
from policy.planning.book import Book
from policy.planning.decisions import Decisions, Leave, ReleaseTrainer, Remember, Reserve, Unreserve
from policy.planning.free_capacity import When
from policy.planning.job_entry import JobEntry
from policy.planning.rules import placements
from policy.planning.victims import LOOK_AHEAD
from policy.reasons import Reason

_RELEASE_AGAIN_S = 10.0
"""Shortest time between two releases for the same service pod; the time doubles with each release."""
_MAX_RELEASE_AGAIN_S = 640.0

_TAKES_S, _TRIED_S = 60.0, 20.0
"""How long free capacity is reserved for a pod. The second value applies if kube-scheduler has already found
no node for the pod: it tries again at most 10 s after capacity became free."""

_Shape = tuple[tuple[tuple[str, int], ...], Constraints, Role | None, int, bool, bool, bool, str]

_Rank = tuple[float, float, float, float]
"""Trainers lost for each pod that then fits, largest share of their jobs (negated), uncommitted work,
earliest start (negated)."""


def serve(book: Book) -> Decisions[None]:
    """Serves services that grow in place, then pods that wait for a node."""
    yield from _serve_resizes(book)
    yield from _reserve_places(book)


def _serve_resizes(book: Book) -> Decisions[None]:
    """Releases trainers on a node where a service waits to become larger in place.

    kube-scheduler already counts the larger size, but preempts no pod for it.
    """
    pods = [pod for pod in book.cluster.resizing.values() if pod.node in book.cluster.nodes]
    for pod in pods:
        yield Unreserve(pod.node, pod.resize or {})
    for pod in sorted(pods, key=lambda pod: (-pod.priority, pod.created_s, pod.key, pod.uid)):
        lacking = pod.resize or {}
        # No scheduler decides about a resize, and the kubelet lacks nothing but resources.
        growth = replace(pod, requests=lacking, only_resources=True, scheduler=DEFAULT_SCHEDULER)
        fits = amounts.within(lacking, book.capacity.free_later(pod.node))
        may_reclaim = not fits and _may_reclaim(growth)
        if not (may_reclaim and (yield from _Reclaim(book, [growth]).place_on(pod.node))):
            yield Reserve(pod.node, lacking)


def _reserve_places(book: Book) -> Decisions[None]:
    """Reserves capacity for waiting pods: on their nominated node, or where they would be placed.

    A pod that fits nowhere even without surplus requests more than training can free. It gets no
    reservation, because the reservation would block all growth forever. A pod that has not taken free
    capacity in time gets none either: it waits for something else, such as a claim. Once that is there,
    kube-scheduler preempts for the pod.
    """
    groups: dict[_Shape | str, list[Pod]] = {}
    services = [pod for pod in book.cluster.waiting.values() if not (pod.gated or is_surplus(pod))]
    counts = Counter(map(_owner, services))
    declined = {pod.uid for pod in services if _has_declined(book, pod, counts)}
    yield _offer((pod for pod in services if pod.uid in declined), counts)
    waiting = (pod for pod in services if pod.uid not in declined)
    for pod in sorted(waiting, key=lambda pod: (-pod.priority, pod.created_s, pod.key, pod.uid)):
        if pod.nominated in book.cluster.nodes:
            # A pod that fits now may still wait for its volumes, for minutes or forever.
            is_now = amounts.within(pod.requests, book.capacity.free_now(pod.nominated))
            yield Reserve(pod.nominated, pod.requests, is_burst=not is_now)
            continue
        requests = tuple(sorted(pod.requests.items()))
        asks = (pod.preempts, pod.only_resources, pod.marked, pod.scheduler)
        shape = (requests, pod.constraints, pod.role, pod.priority, *asks)
        # A pod whose constraints name one node has no equals, and its uid is the cheaper key.
        key = pod.uid if pod.constraints.only_node else shape
        groups.setdefault(key, []).append(pod)
    for pods in groups.values():
        if pods[0].constraints.only_node:
            yield from _place_named(book, pods, counts)
        else:
            yield from _place_equal(book, pods, counts)


def _place_named(book: Book, pods: list[Pod], counts: Mapping[str, int]) -> Decisions[None]:
    """Places a pod whose constraints name one node, like `_place_equal`; a rollout has thousands of them."""
    pod, pooled = pods[0], pods[0].role is Role.TRAINER
    for node in book.capacity.open_nodes(pod.constraints, pooled=pooled):
        is_now = amounts.within(pod.requests, book.capacity.free_now(node))
        if is_now or amounts.within(pod.requests, book.capacity.free_later(node)):
            yield Reserve(node, pod.requests, is_burst=not is_now)
            yield _offer(pods if is_now else (), counts)
            return
        if _may_reclaim(pod) and (yield from _Reclaim(book, pods).place_on(node)):
            return
    yield from _make_way(book, pods)


def _place_equal(book: Book, pods: list[Pod], counts: Mapping[str, int]) -> Decisions[None]:
    """Places pods of one shape on free capacity, then on leaving pods' capacity, then by reclaim."""
    first = pods[0]
    unplaced = yield from _fill(book, first, len(pods), When.NOW)
    yield _offer(pods[: len(pods) - unplaced], counts)
    if not unplaced:
        return
    if _fits_nowhere(book, first):
        yield Leave(tuple(pods[len(pods) - unplaced :]))
        return
    unschedulable = yield from _fill(book, first, unplaced, When.LATER)
    if unschedulable and _may_reclaim(first):
        unschedulable = yield from _Reclaim(book, pods[len(pods) - unschedulable :]).run()
    yield from _make_way(book, pods[len(pods) - unschedulable :])


def _fits_nowhere(book: Book, pod: Pod) -> bool:
    """Returns whether a pod fits on no node even without surplus."""
    pooled = pod.role is Role.TRAINER
    return not book.capacity.slots(pod.requests, pod.constraints, pooled=pooled)


def _make_way(book: Book, pods: list[Pod]) -> Decisions[None]:
    """Places guaranteed trainers and servers by releasing guaranteed trainers above another job's minimum.

    kube-scheduler preempts no pod of the same priority, so the plan releases such trainers. A trainer
    that an earlier plan released for these pods, and whose eviction was refused, is released again. All
    other pods fit nowhere.
    """
    left = []
    for pod in pods:
        entry = book.owner(pod) if book.has_excess and pod.is_training else None
        node = ""
        if entry is not None and not entry.stopped and pod.uid not in entry.facts.excess:
            pooled = pod.role is Role.TRAINER
            node = yield from placements.place(
                book, entry, pod.requests, pod.constraints, pooled=pooled
            )
        if not node:
            left.append(pod)
    yield Leave(tuple(left))


def _fill(book: Book, pod: Pod, count: int, when: When) -> Decisions[int]:
    """Reserves capacity for up to `count` pods like `pod` where they fragment capacity least.

    The nodes are estimates: kube-scheduler decides where the pods run.

    Returns:
        The number of pods that fit nowhere.
    """
    pooled = pod.role is Role.TRAINER
    while count and (
        node := book.capacity.cheapest_node(pod.requests, pod.constraints, pooled=pooled, when=when)
    ):
        yield Reserve(node, pod.requests, is_burst=when is When.LATER)
        count -= 1
    return count


def _owner(pod: Pod) -> str:
    """Returns the uid of a pod's owner, or the pod's own uid; pods with the same owner are alike."""
    return pod.owner_uid or pod.uid


def _has_declined(book: Book, pod: Pod, counts: Mapping[str, int]) -> bool:
    """Returns whether pods of the same owner failed to take the capacity reserved for them in time."""
    offer = book.history.offered.get(_owner(pod))
    if offer is None:
        return False
    since_s, before = offer
    limit_s = _TRIED_S if pod.refused else _TAKES_S
    return counts[_owner(pod)] >= before and book.now_s - since_s >= limit_s


def _offer(pods: Iterable[Pod], counts: Mapping[str, int]) -> Remember:
    """Records for the next plan that pods were offered capacity or have declined it."""
    return Remember(offered={owner: counts[owner] for owner in map(_owner, pods)})


class _Reclaim:
    """Reclaims capacity from surplus trainers for service pods of one shape."""

    def __init__(self, book: Book, pods: list[Pod]) -> None:
        self._book = book
        self._pods = pods
        self._requests = pods[0].requests
        self._owner: dict[str, JobEntry] = {}
        self._preemptible: dict[str, list[Pod]] = {}
        """Node -> its surplus trainers that may be released."""

    def run(self) -> Decisions[int]:
        """Reserves reclaimable capacity for the pods, and releases trainers if `_may_release` allows it.

        Returns:
            The number of pods that fit nowhere.
        """
        first = self._pods[0]
        pooled = first.role is Role.TRAINER
        names = self._book.capacity.open_nodes_with(
            When.RECLAIMED, first.constraints, pooled=pooled
        )
        heap = [(rank, name) for name in names if (rank := self._first_rank(name)) is not None]
        heapify(heap)
        while heap and self._pods:
            rank, name = heappop(heap)
            current_rank = self._rank(name)
            if current_rank is not None and current_rank <= rank:
                yield from self._place_one(name, self._victims(name) or [])
                current_rank = self._rank(name) if self._pods else None
            if current_rank is not None:
                heappush(heap, (current_rank, name))
        return len(self._pods)

    def place_on(self, name: str) -> Decisions[bool]:
        """Reserves reclaimable capacity on a node for the first pod, if the node has enough."""
        self._examine(name)
        victims = self._victims(name)
        if victims is not None:
            yield from self._place_one(name, victims)
        return victims is not None

    def _add_preemptible(self, entry: JobEntry, pod: Pod) -> None:
        self._owner[pod.uid] = entry
        self._preemptible[pod.node].append(pod)

    def _first_rank(self, name: str) -> _Rank | None:
        """Examines a node for the first time, and returns its rank."""
        self._examine(name)
        return self._rank(name)

    def _examine(self, name: str) -> None:
        """Finds the surplus trainers of a node."""
        self._preemptible[name] = []
        for owner, pod in self._book.unmanaged_surplus.get(name, ()):
            if pod.uid not in self._book.released:
                self._add_preemptible(owner, pod)
        for pod in self._book.cluster.bound.get(name, {}).values():
            entry = self._book.owner(pod) if is_surplus(pod) and not pod.deleting else None
            if entry is None or not entry.job.managed:  # unmanaged jobs' pods are already in it
                continue
            outranked = pod.priority < self._pods[0].priority
            if outranked and pod.uid not in self._book.released:
                self._add_preemptible(entry, pod)

    def _victims(self, name: str) -> list[Pod] | None:
        """Returns the trainers to release on a node for one more pod; None if even all free too little."""
        free = self._book.capacity.free_later(name)
        victims: list[Pod] = []
        for pod in sorted(self._preemptible[name], key=self._order):
            if amounts.within(self._requests, free):
                break
            amounts.add(free, pod.requests)
            victims.append(pod)
        return victims if amounts.within(self._requests, free) else None

    def _order(self, pod: Pod) -> tuple[bool, float, float, float, str]:
        """Returns the sort key of victims; `policy.planning.victims` uses the same order, so both agree."""
        return pod.master, -self._share_of(pod), pod.uncommitted_s, -pod.started_s, pod.uid

    def _share_of(self, pod: Pod) -> float:
        entry = self._owner[pod.uid]
        return self._book.measure(entry, entry.count)

    def _rank(self, name: str) -> _Rank | None:
        """Returns a node's rank; the lowest rank is the best. None if reclaim does not help there."""
        victims = self._victims(name)
        if victims is None:
            return None
        richest = max((self._share_of(pod) for pod in victims), default=0.0)
        lost_s = sum(pod.uncommitted_s for pod in victims)
        oldest = -min((pod.started_s for pod in victims), default=0.0)
        return self._lost_per_pod(name, victims), -richest, lost_s, oldest

    def _lost_per_pod(self, name: str, victims: list[Pod]) -> float:
        """Returns the fewest trainers lost for each pod that fits; `policy.planning.victims` counts alike."""
        if not victims:
            return 0.0
        free = self._book.capacity.free_later(name)
        for pod in victims:
            amounts.add(free, pod.requests)
        best = len(victims) / self._fits(free)
        further = (pod for pod in self._preemptible[name] if pod not in victims)
        for additional, pod in enumerate(islice(further, LOOK_AHEAD), start=1):
            amounts.add(free, pod.requests)
            best = min(best, (len(victims) + additional) / self._fits(free))
        return best

    def _fits(self, free: Resources) -> int:
        return max(1, min(len(self._pods), amounts.times(self._requests, free)))

    def _place_one(self, name: str, victims: list[Pod]) -> Decisions[None]:
        """Reserves capacity for one pod on a node, and releases `victims` if `_may_release` allows it."""
        pod = self._pods.pop(0)
        may_release = bool(victims) and self._may_release(pod)
        preempts = bool(victims) and pod.is_training and _preempts_for_room(pod)
        yield Reserve(name, self._requests, is_burst=may_release or preempts)
        if not may_release:
            return
        figures: dict[str, Figure] = {"service": pod.key, "needs": pod.requests}
        for victim in victims:
            self._preemptible[name].remove(victim)
            entry = self._owner[victim.uid]
            yield ReleaseTrainer(entry.key, victim, Reason.SERVICES_FIRST, figures, service=pod.uid)

    def _may_release(self, pod: Pod) -> bool:
        """Returns whether trainers may be released for this pod: only for services, with growing delays.

        The delays grow because a pod that does not use the capacity freed for it waits for something else.
        """
        times, last_s = self._book.history.reclaimed_for.get(pod.uid, (0, 0.0))
        wait_s = pause_s(_RELEASE_AGAIN_S, _MAX_RELEASE_AGAIN_S, times)
        return pod.role is None and self._book.now_s - last_s >= wait_s


def _may_reclaim(pod: Pod) -> bool:
    """Returns whether a waiting pod may take the capacity of surplus trainers.

    A service that may wait forever must not take it: each plan would release trainers for it again.
    """
    return pod.is_training or _preempts_for_room(pod)


def _preempts_for_room(pod: Pod) -> bool:
    """Returns whether a pod lacks nothing but capacity and trainers may be evicted for it.

    For some pods only their scheduler knows whether they lack capacity, and a pod with
    `preemptionPolicy: Never` preempts no other pod. Such pods may wait forever, so they must not start a
    burst, which would stop all moves. A service that requests EDL's marker finds no node unless an
    extender is registered.
    """
    lacks_room = pod.only_resources and (pod.is_training or not pod.marked)
    return lacks_room and pod.preempts and pod.scheduler == DEFAULT_SCHEDULER
