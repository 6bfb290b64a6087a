"""Rules 4 and 7, sharing: remaining capacity goes, trainer by trainer, to the job with the smallest share.

This is weighted max-min fairness by progressive filling (Bertsekas and Gallager, "Data Networks"). With the
dominant share as the measure, it is DRF (Ghodsi et al. 2011).
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from policy.cluster import amounts
from policy.cluster.snapshot import Pod
from policy.decisions import Figure
from policy.names import Tier
from policy.planning import sizes
from policy.planning.book import Book
from policy.planning.decisions import (
    BackOff,
    Blocked,
    CreateTrainers,
    Decisions,
    Expect,
    Explain,
    Pause,
    ReleaseTrainer,
    Reserve,
)
from policy.planning.free_capacity import When
from policy.planning.job_entry import JobEntry
from policy.planning.rules import creation_backoffs, quota_relief
from policy.planning.rules.admission import backing_off, replacing
from policy.planning.rules.pacing import Pacing, own_in_flight
from policy.reasons import Reason

_DIGITS = 12
"""Digits to which shares are rounded: they are sums of floats, so equal shares may differ in the last digits."""
_IGNORED_FACTOR = 4
"""A waiting trainer that fits on a node is withdrawn after this multiple of the normal delay."""
_REFUSED_FACTOR = 2
"""The same for a waiting trainer for which kube-scheduler has already found no node."""


def place_waiting(book: Book) -> Decisions[None]:
    """Reserves capacity for waiting surplus trainers; withdraws trainers that have waited too long.

    kube-scheduler may have parked a trainer that fits somewhere, and retries parked pods only after
    minutes; a newly created trainer enters its active queue at once. A trainer with scheduling gates
    stays, and gets no capacity until the gates are removed.
    """
    delay_s = book.policy.stability.withdraw_after_seconds
    for entry in book.entries:
        for pod in entry.waiting:
            if pod.gated:
                continue
            node = _node_of_waiting(book, pod)
            waited_s = book.waited_s(pod) if entry.job.managed else 0.0
            factor = _REFUSED_FACTOR if pod.refused else _IGNORED_FACTOR
            if node and not 0 < factor * delay_s <= waited_s:
                yield Reserve(node, pod.requests, trainer=pod.uid)
            elif node:
                cause = "kube-scheduler did not use the free capacity"
                backoff = creation_backoffs.after_unplaced(book, entry, pod)
                if backoff is not None:
                    yield BackOff(entry.key, backoff)
                yield _withdrawal(entry, pod, cause, waited_s)
            elif waited_s >= delay_s and entry.job.managed:
                yield _withdrawal(entry, pod, "no node had capacity", waited_s)


def _withdrawal(entry: JobEntry, pod: Pod, cause: str, waited_s: float) -> ReleaseTrainer:
    figures: dict[str, Figure] = {"why": cause, "waited_s": int(waited_s)}
    return ReleaseTrainer(entry.key, pod, Reason.NOT_SCHEDULED, figures)


def _node_of_waiting(book: Book, pod: Pod) -> str:
    """Returns a node on which a waiting trainer fits, if possible its planned node; "" for none."""
    planned_node = pod.planned
    open_nodes = book.capacity.open_nodes(pod.constraints, pooled=True)
    usable = planned_node in open_nodes and planned_node not in book.closed
    if usable and amounts.within(pod.requests, book.capacity.free_now(planned_node)):
        return planned_node
    return book.capacity.cheapest_node(pod.requests, pod.constraints, book.closed)


def grow(book: Book) -> Decisions[bool]:
    """Creates surplus trainers where capacity is free now.

    Returns:
        False if more trainers could be created, but enough trainers already wait for the scheduler. A job
        whose trainers fit nowhere does not make it False; nor does a namespace that waits because more
        than its part of the trainers wait for the scheduler.
    """
    pacing, entries = Pacing(book), book.entries
    while entries:
        yield from _grow_in_turn(book, entries, pacing)
        entries = pacing.next_round()
    for entry in pacing.paused:
        if (yield from _next_step(book, entry)):
            yield Pause(entry.key, pacing.waiting)
    return not pacing.holds_moves


def _grow_in_turn(book: Book, entries: Sequence[JobEntry], pacing: Pacing) -> Decisions[None]:
    """Runs one round: each job gets the trainers that it may have now, the smallest share first."""
    heap = [(*_rank(book, entry), position) for position, entry in enumerate(entries)]
    heapify(heap)
    while heap:
        borrows, *_, position = heappop(heap)
        entry = entries[position]
        if not borrows and book.standing(entry)[0]:  # its queue's other jobs used the rest
            heappush(heap, (*_rank(book, entry), position))
            continue
        if borrows and pacing.owner_waits and (yield from _next_step(book, entry)):
            pacing.pause(entry)
            continue
        step = 0 if entry.expected_count else (yield from _next_step(book, entry))
        allowed = step and pacing.allows(entry, step)
        if pacing.is_full:
            pacing.paused += [entry, *(entries[item[-1]] for item in heap)]
            return
        if (
            step and not allowed and free_slot(book, entry)
        ):  # otherwise it waits for capacity, not for a turn
            pacing.pause(entry)
            continue
        if step and own_in_flight(entry) > pacing.budget - min(step, pacing.budget):
            yield Explain(entry.key, Blocked(Reason.GROWING, {"waiting": own_in_flight(entry)}))
            continue
        if step and (yield from _add_surplus(book, entry, step)):
            pacing.add(entry, step)
        elif not (yield from _reserve_leaving(book, entry)):
            continue
        heappush(heap, (*_rank(book, entry), position))


def _rank(book: Book, entry: JobEntry) -> tuple[bool, int, float, float, float, str]:
    """Returns the sort key of jobs: the best standing first, then the smallest share.

    Among equal jobs, the job whose share rises most by one trainer comes first, as lexicographic max-min
    fairness demands, then the job with the smallest fraction of its own maximum, then the first key.
    """
    fulfilment = (entry.count + entry.expected_count) / max(1, entry.job.max_trainers)
    measure = round(book.expected_measure(entry), _DIGITS)
    return *book.standing(entry), measure, -entry.facts.trainer_measure, fulfilment, entry.key


def _next_step(book: Book, entry: JobEntry) -> Decisions[int]:
    """Returns how many trainers a job lacks to its next size; 0, with an explanation, if it must not grow."""
    step = sizes.next_size(book.policy, entry.job, entry.count) - entry.count
    blocked = _blocked(book, entry, step)
    if blocked is None:
        return step
    yield Explain(entry.key, blocked)
    return 0


def _blocked(book: Book, entry: JobEntry, step: int) -> Blocked | None:
    """Returns why a job may not get `step` more trainers; None if only free capacity can stop it."""
    job = entry.job
    if not entry.grows:
        return _stop(entry)
    if entry.count < entry.covered_min or entry.awaits_nodes:
        return entry.blocked  # as rule 5 explained it
    if blocked := backing_off(book, entry):
        return blocked
    if step <= 0:
        at_max = entry.count >= job.max_trainers
        figures = {"trainers": entry.count, "max": job.max_trainers}
        return Blocked(Reason.AT_MAX if at_max else Reason.AT_CEILING, figures)
    if not book.quotas.allow(job, step):
        return Blocked(Reason.QUOTA_REACHED, book.quotas.lack(job, step))
    if blocked := quota_relief.surplus_hold(book, entry):
        return blocked
    if not book.load.allow(job.requests, step):
        return Blocked(Reason.RESERVE_HELD, book.load.lack(job.requests, step))
    return replacing(entry, step) or creation_backoffs.surplus_hold(book, entry)


def _reserve_leaving(book: Book, entry: JobEntry) -> Decisions[bool]:
    """Reserves the capacity that leaving pods will free for a job whose turn it is.

    Without the reservation a richer job would get the capacity and would have to release it again.

    Returns:
        False if leaving pods free too little for the job's next size.
    """
    if entry.reason not in (Reason.NO_ROOM, Reason.RESERVE_HELD) or not entry.admitted:
        return False
    requests, step = entry.job.requests, book.next_step(entry)
    if step <= 0 or not book.quotas.allow(entry.job, step):
        return False
    if not book.load.allow_later(requests, {}, step):
        return False
    nodes = book.capacity.place_each(requests, step, lambda: _leaving_slot(book, entry, step))
    if len(nodes) < step:
        return False
    yield Expect(entry.key, tuple(nodes))
    return True


def _leaving_slot(book: Book, entry: JobEntry, step: int) -> str:
    """Returns a node where one more trainer fits once leaving pods have ended; "" for none.

    If the next size takes several trainers, some of them may fit now.
    """
    job = entry.job
    node = book.capacity.cheapest_node(job.requests, job.constraints, when=When.LATER)
    if node or step == 1:
        return node or free_slot(book, entry)
    return book.capacity.cheapest_node(job.requests, job.constraints, book.closed)


def free_slot(book: Book, entry: JobEntry) -> str:
    """Returns a node with free capacity for a job that only load or quota stops; "" for none."""
    if entry.reason is Reason.NO_ROOM:
        return ""
    return book.capacity.cheapest_node(entry.job.requests, entry.job.constraints, book.closed)


def _stop(entry: JobEntry) -> Blocked:
    """Returns why a job gets no more trainers at all."""
    job = entry.job
    if job.error:
        reason = Reason.QUARANTINED if job.quarantined else Reason.INVALID
        return Blocked(reason, {"error": job.error})
    if job.suspended:
        return Blocked(Reason.SUSPENDED)
    if entry.facts.ending:
        return Blocked(Reason.ENDING, {"succeeded": max(1, job.accounting.succeeded)})
    return Blocked(Reason.ENDING)


def _add_surplus(book: Book, entry: JobEntry, step: int) -> Decisions[bool]:
    """Creates `step` more trainers of a job, all or none; returns whether it created them."""
    job, closed = entry.job, book.closed
    nodes = book.capacity.place_each(
        job.requests,
        step,
        lambda: book.capacity.cheapest_node(job.requests, job.constraints, closed),
    )
    if len(nodes) < step:
        figures: dict[str, Figure] = {"trainers": entry.count, "needs": job.requests}
        yield Explain(entry.key, Blocked(Reason.NO_ROOM, figures))
        return False
    for node in nodes:
        yield Reserve(node, job.requests)
    yield CreateTrainers(entry.key, Tier.SURPLUS, tuple(nodes))
    return True
