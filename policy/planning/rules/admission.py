"""Rule 5, admission: a job's first guaranteed trainers are created all together or not at all.

So partly started jobs never block each other. The parameter servers of a starting job are part
of the gang. Surplus of other jobs counts as reclaimable: a new job starts at once on a full
cluster.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from policy.backoff import pause_s
from policy.cluster.snapshot import Pod
from policy.decisions import Figure, time
from policy.names import Tier
from policy.planning.book import Book
from policy.planning.decisions import (
    AddServers,
    Blocked,
    Claim,
    CreateTrainers,
    Decisions,
    Explain,
    HoldQuota,
    ReleaseTrainer,
    Remember,
    Reserve,
    Uncover,
    WaiveAvoidance,
)
from policy.planning.job_entry import JobEntry
from policy.planning.rules import (
    admission_order,
    creation_backoffs,
    node_requests,
    placements,
    quota_relief,
    receivers,
    servers,
)
from policy.planning.rules.placements import Placement
from policy.planning.rules.trial import Trial
from policy.reasons import Reason

_FIRST_BACKOFF_S = 10.0
_MAX_BACKOFF_S = 360.0


def backoff_s(failures_in_row: int) -> float:
    """Seconds without creations after the last of several failures: 10 s, doubling to 6 min.

    These are the delays of the built-in Job controller.
    """
    return pause_s(_FIRST_BACKOFF_S, _MAX_BACKOFF_S, failures_in_row)


def backing_off(book: Book, entry: JobEntry) -> Blocked | None:
    """Returns how a job's trainers failed so recently that none is created now, if they did."""
    accounting = entry.job.accounting
    until_s = accounting.last_failure_s + backoff_s(accounting.failures_in_row)
    if until_s <= book.now_s:
        return None
    return Blocked(
        Reason.BACKING_OFF, {"failures": accounting.failures_in_row, "until": time(until_s)}
    )


def replacing(entry: JobEntry, step: int) -> Blocked | None:
    """Returns how many other trainers must end before `step` more are created, if some must.

    Under `podReplacementPolicy: Failed` a trainer counts against max until it has ended, those that
    this plan releases included. Replacements of stranded trainers come on top.
    """
    facts = entry.facts
    present = facts.count + facts.leaving + sum(map(len, entry.creates.values()))
    excess = present + step - entry.job.max_trainers - facts.stranded
    if excess <= 0 or not entry.job.replaces_ended:
        return None
    return Blocked(Reason.REPLACING, {"trainers": excess})


def hold(book: Book, entry: JobEntry) -> Blocked | None:
    """Returns why no guaranteed trainer is created now: failures or refusals; None where one may be."""
    return backing_off(book, entry) or creation_backoffs.refusal(book, entry)


def admit(book: Book) -> Decisions[None]:
    """Creates missing guaranteed trainers, the oldest job first; releases those that are not covered."""
    yield from creation_backoffs.take_back_partial_starts(book)
    yield from node_requests.settle(book)
    turns = node_requests.turns(book)
    held = admission_order.hold_nodes(book)
    for entry in sorted(book.entries, key=admission_order.turn):
        missing = admission_order.missing(entry)
        if not entry.grows or missing <= 0:
            continue
        if quota_relief.is_held(book, entry):
            yield HoldQuota(entry.key)
        if blocked := hold(book, entry) or replacing(entry, missing):
            yield Explain(entry.key, blocked)
            if blocked.reason is Reason.REFUSED:
                yield from quota_relief.relieve(book, entry, missing)
            continue
        count, server_count = entry.count, entry.server_count
        has_turn = entry.key in turns
        created = yield from _start(book, entry, missing, held, has_turn=has_turn)
        missing = admission_order.missing(entry)  # without what its queue's quota does not cover
        if created < missing:
            yield from node_requests.request(book, entry, missing - created, has_turn=has_turn)
        low = entry.covered_min
        new_count = min(entry.count, low) - min(count, low)
        yield Claim(entry.key, new_count, entry.server_count - server_count)
    yield Remember(line=admission_order.line_after(book, held))
    yield from _release_uncovered(book)


def _release_uncovered(book: Book) -> Decisions[None]:
    """Releases guaranteed trainers above their job's minimum that their queue's nominal quota does not cover.

    They count as surplus, and would become a minimum again if it were raised: a tenant that lowers and
    raises minimums in turn would gather guaranteed trainers. Surplus may take their place.
    """
    for entry in book.entries if book.quotas.borrowing and book.has_excess else ():
        pods = [pod for pod in entry.surplus if pod.uid in entry.facts.excess]
        covered = book.quotas.room_for_minimum(entry.job, len(pods), 0)
        figures = (
            book.quotas.lack_for_minimum(entry.job, len(pods), 0) if covered < len(pods) else {}
        )
        yield Claim(entry.key, covered, 0)
        for pod in pods[: len(pods) - covered]:
            yield ReleaseTrainer(entry.key, pod, Reason.QUOTA_REACHED, figures)


@dataclass(slots=True)
class _Gang:
    """What a job would start with, as far as it was found, and what has to be done for it."""

    trainers: list[Placement]
    servers: list[Placement]
    victims: list[tuple[JobEntry, Pod]]
    """(donor, trainer) pairs: surplus to release so that the quotas allow the trainers."""
    blocked: Blocked | None = None
    """Why trainers are missing, if some are."""
    is_waived: bool = False
    """Whether trainers may run on nodes that the job avoids."""


def _start(
    book: Book, entry: JobEntry, missing: int, held: admission_order.Held, *, has_turn: bool
) -> Decisions[int]:
    """Creates a job's missing trainers as far as there is capacity; all or none where it starts.

    The parameter servers of a starting job are created with them. Surplus in the same quota
    counts as reclaimable too: it is released if all missing trainers then fit.

    Returns:
        The number of trainers that it creates.
    """
    missing = yield from _covered_by_own_quota(book, entry, missing)
    if missing <= 0:
        return 0
    gang = _find_gang(book, entry, missing, held, has_turn=has_turn)
    if gang.is_waived:
        yield WaiveAvoidance(entry.key)
    if gang.blocked is not None:
        yield Explain(entry.key, gang.blocked)
    for placement in (*gang.servers, *gang.trainers):
        yield Reserve(placement.node, placement.requests)
    for donor, pod in gang.victims:
        yield ReleaseTrainer(donor.key, pod, Reason.QUOTA_REACHED, {"job": entry.key})
    yield from placements.count_preempted(book, entry, (*gang.trainers, *gang.servers))
    if gang.servers:
        nodes = {number: placement.node for number, placement in enumerate(gang.servers)}
        yield AddServers(entry.key, nodes, is_start=True)
    if gang.trainers:
        gains = placements.count_gains((*gang.trainers, *gang.servers))
        taken = sum(donor is not entry for donor, _ in gang.victims)
        nodes_of_trainers = tuple(placement.node for placement in gang.trainers)
        yield CreateTrainers(entry.key, Tier.GUARANTEED, nodes_of_trainers, max(gains, taken))
    return len(gang.trainers)


def _covered_by_own_quota(book: Book, entry: JobEntry, missing: int) -> Decisions[int]:
    """Returns how many of a job's missing trainers its queue's nominal quota covers: minimums do not borrow.

    All or none where the job starts. Other jobs of the queue may have started since the plan began.
    """
    wanted, server_count = entry.covered_min - entry.facts.claimed, entry.servers_to_start
    lacking = wanted - book.quotas.room_for_minimum(entry.job, wanted, server_count)
    if lacking and not entry.live:
        yield Explain(entry.key, own_quota_lack(book, entry, missing))
        return 0
    if lacking:
        yield Uncover(entry.key, lacking)
    return missing - lacking


def own_quota_lack(book: Book, entry: JobEntry, missing: int) -> Blocked:
    """Returns how much of a job's minimum its queue's nominal quota does not cover."""
    server_count = entry.servers_to_start
    lack = book.quotas.lack_for_minimum(entry.job, missing, server_count)
    return Blocked(Reason.QUOTA_REACHED, {**lack, "missing": missing})


def _find_gang(
    book: Book, entry: JobEntry, missing: int, held: admission_order.Held, *, has_turn: bool
) -> _Gang:
    """Finds nodes for a job's missing trainers, and for the servers that start with them."""
    job, closed = entry.job, held.closed_to(entry)
    victims, refused = _quota_victims(book, entry, missing, closed)
    all_or_none = bool(victims) or not entry.live
    gang = _Gang([], [], victims, refused)
    with Trial(book) as trial:
        with book.quotas.without((donor.job, [pod]) for donor, pod in victims):
            placed = servers.place_initial(book, trial, entry, missing, closed)
            placeable = 0
            if isinstance(placed, list):
                gang.servers = placed
                placeable = _placeable(book, entry, missing, closed)
                if placeable == missing or not all_or_none:
                    _place_trainers(book, trial, entry, missing, closed, gang, has_turn=has_turn)
                    placeable = len(gang.trainers)
                else:
                    trial.count(job, placeable, 0)
            elif placed is not None:
                gang.blocked = placed
        if placeable == missing:
            return gang
        if gang.blocked is None:
            served = isinstance(placed, list)
            blocked = _lack(book, entry, missing - placeable, served=served)
            gang.blocked = admission_order.explained(book, held, entry, blocked)
    return _Gang([], [], [], gang.blocked, gang.is_waived) if all_or_none else gang


def _placeable(book: Book, entry: JobEntry, missing: int, closed: frozenset[str]) -> int:
    """Returns an upper bound for a job's missing trainers that free capacity and quotas allow.

    It spares each plan the work of placing a minimum that can never start, such as ten thousand
    trainers, and of taking it back again.
    """
    numbers = range(1, 1 + min(missing, _slots(book, entry, closed)))
    return bisect_left(numbers, True, key=lambda count: not book.quotas.allow(entry.job, count))


def _slots(book: Book, entry: JobEntry, closed: frozenset[str]) -> int:
    """Returns how many trainers of a job fit on nodes; an upper bound if the job lacks its master."""
    constraints = book.cluster.jobs[entry.key].constraints  # avoided nodes are tried, too
    needs = (entry.job.requests, entry.requests(first=True))
    slots = [book.capacity.slots(requests, constraints, closed, pooled=True) for requests in needs]
    return slots[0] if slots[1] else 0


def _place_trainers(
    book: Book,
    trial: Trial,
    entry: JobEntry,
    missing: int,
    closed: frozenset[str],
    gang: _Gang,
    *,
    has_turn: bool,
) -> None:
    """Places up to `missing` trainers, and adds them to the gang.

    On nodes that the job avoids only where they fit on no others: a crash may have been its own,
    and a node that fails again costs less than a minimum that waits. Not while an autoscaler may
    still add nodes for them.
    """
    job = entry.job
    constraints, submitted = job.constraints, book.cluster.jobs[entry.key].constraints
    gains = placements.count_gains(gang.servers)
    while len(gang.trainers) < missing and book.quotas.allow(job):
        requests = entry.requests(first=not gang.trainers)
        placement = trial.place(requests, constraints, closed, pooled=True)
        if placement is None:
            is_last = constraints == submitted
            if is_last or node_requests.may_come(book, entry, has_turn=has_turn):
                return
            gang.is_waived = True
            constraints = submitted
            continue
        gains += not placement.is_free
        if not placement.is_free and (blocked := receivers.refusal(entry, gains, minimum=True)):
            gang.blocked = blocked
            return
        gang.trainers.append(placement)
        trial.count(job, 1, 0)


def _quota_victims(
    book: Book, entry: JobEntry, missing: int, closed: frozenset[str]
) -> tuple[list[tuple[JobEntry, Pod]], Blocked | None]:
    """Finds surplus to release so that the quotas allow `missing` more trainers, richest jobs first.

    All surplus of the job itself may be released, as each trainer is replaced by a guaranteed one.

    Returns:
        (donor, trainer) pairs, and why other jobs do not give them, if they do not. No pairs where
        nothing must be released, where the trainers have no capacity, and where all surplus is not
        enough.
    """
    victims: list[tuple[JobEntry, Pod]] = []
    job, server_count = entry.job, entry.servers_to_start
    quotas = book.quotas
    if quotas.allow(job, missing, server_count) or _slots(book, entry, closed) < missing:
        return [], None
    candidates = {e.key: e.surplus if e.job is job else e.spare for e in book.entries}
    if not _all_relieve(book, entry, missing, candidates):
        return [], None
    with ExitStack() as gone:
        while not quotas.allow(job, missing, server_count):
            donors = [
                candidate
                for candidate in book.entries
                if candidates[candidate.key]
                and quotas.relieves(job, missing, candidate.job, server_count)
            ]
            if not donors:  # the remaining surplus is of queues that do not borrow
                return [], None
            counts = Counter(donor.key for donor, _ in victims)
            donor = max(donors, key=lambda e: (book.measure(e, e.count - counts[e.key]), e.key))
            victims.append((donor, candidates[donor.key].pop(0)))
            gone.enter_context(quotas.without([(donor.job, [victims[-1][1]])]))
    others = sum(donor is not entry for donor, _ in victims)
    refused = receivers.refusal(entry, others, minimum=True)
    return ([], refused) if refused else (victims, None)


def _all_relieve(
    book: Book, entry: JobEntry, missing: int, candidates: Mapping[str, Sequence[Pod]]
) -> bool:
    """Returns whether the quotas would allow `missing` trainers if all candidates were released.

    Victims are chosen one by one, which takes time for each; this check saves it where all are too few.
    """
    job, server_count = entry.job, entry.servers_to_start
    donors = [
        (donor.job, candidates[donor.key])
        for donor in book.entries
        if candidates[donor.key] and book.quotas.relieves(job, missing, donor.job, server_count)
    ]
    with book.quotas.without(donors):
        return book.quotas.allow(job, missing, server_count)


def _lack(book: Book, entry: JobEntry, missing: int, *, served: bool) -> Blocked:
    """Returns what a job lacks for its missing trainers: quota, or capacity of nodes."""
    job, needs = entry.job, entry.requests(first=True)
    server_count = 0 if served else entry.servers_to_start
    if not book.quotas.allow(job, missing if server_count else 1, server_count):
        lack = book.quotas.lack(job, missing, server_count)
        return Blocked(Reason.QUOTA_REACHED, {**lack, "missing": missing})
    if job.servers is not None and server_count:
        server_figures: dict[str, Figure] = {"servers": server_count, "needs": job.servers.requests}
        return Blocked(Reason.WAITING_FOR_ROOM, server_figures)
    constraints = book.cluster.jobs[entry.key].constraints  # avoided nodes were tried, too
    pools = book.policy.node_pools
    slots = book.capacity.slots(needs, constraints, pooled=True)
    if slots or book.cluster.fits_empty_node(needs, constraints, pools):
        return Blocked(Reason.WAITING_FOR_ROOM, {"missing": missing, "needs": needs})
    names = book.capacity.open_nodes(constraints, pooled=True)
    figures: dict[str, Figure] = {"needs": needs, "nodes": len(names)}
    if names:
        largest, needed = book.cluster.largest(constraints, pools), sorted(needs.keys() - {"pods"})
        figures["largest"] = {name: largest.get(name, 0) for name in needed}
    return Blocked(Reason.FITS_NO_NODE, figures)
