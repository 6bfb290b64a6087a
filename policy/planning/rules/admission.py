"""Rule 5, admission: a job's first guaranteed trainers are created all together or not at all.

Partly started jobs can therefore never block each other. A starting job's parameter servers are part of
the gang. Other jobs' surplus counts as reclaimable, so that a new job starts at once on a full cluster.
"""

from policy.backoff import pause_s
from policy.decisions import time
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
)
from policy.planning.rules.gang import Gang
from policy.reasons import Reason

_FIRST_BACKOFF_S = 10.0
_MAX_BACKOFF_S = 360.0


def backoff_s(failures_in_row: int) -> float:
    """Returns for how long no trainer is created after the last failure: 10 s, doubling up to 6 min.

    The built-in Job controller has the same delays.
    """
    return pause_s(_FIRST_BACKOFF_S, _MAX_BACKOFF_S, failures_in_row)


def backing_off(book: Book, entry: JobEntry) -> Blocked | None:
    """Returns why a job gets no trainers now, if its trainers failed recently; None if it may get some."""
    accounting = entry.job.accounting
    until_s = accounting.last_failure_s + backoff_s(accounting.failures_in_row)
    if until_s <= book.now_s:
        return None
    return Blocked(
        Reason.BACKING_OFF, {"failures": accounting.failures_in_row, "until": time(until_s)}
    )


def replacing(entry: JobEntry, step: int) -> Blocked | None:
    """Returns how many trainers must end before `step` more may be created; None if none must.

    Under `podReplacementPolicy: Failed` a trainer counts against max until it has ended, even if this
    plan releases it. Replacements of stranded trainers may exceed max.
    """
    facts = entry.facts
    present = facts.count + facts.leaving + sum(map(len, entry.creates.values()))
    excess = present + step - entry.job.max_trainers - facts.stranded
    if excess <= 0 or not entry.job.replaces_ended:
        return None
    return Blocked(Reason.REPLACING, {"trainers": excess})


def hold(book: Book, entry: JobEntry) -> Blocked | None:
    """Returns why a job gets no guaranteed trainer now (failures or refusals); None if it may get one."""
    return backing_off(book, entry) or creation_backoffs.refusal(book, entry)


def admit(book: Book) -> Decisions[None]:
    """Creates missing guaranteed trainers, oldest job first; releases guaranteed trainers not covered."""
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
        missing = admission_order.missing(entry)  # `_start` may have lowered it
        if created < missing:
            yield from node_requests.request(book, entry, missing - created, has_turn=has_turn)
        low = entry.covered_min
        new_count = min(entry.count, low) - min(count, low)
        yield Claim(entry.key, new_count, entry.server_count - server_count)
    yield Remember(line=admission_order.line_after(book, held))
    yield from _release_uncovered(book)


def _release_uncovered(book: Book) -> Decisions[None]:
    """Releases guaranteed trainers above a job's minimum that the queue's nominal quota does not cover.

    These trainers count as surplus, but would be part of the minimum again if it were raised: a tenant
    that lowers and raises minimums in turn would gather guaranteed trainers. Surplus may replace them.
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


def _start(
    book: Book, entry: JobEntry, missing: int, held: admission_order.Held, *, has_turn: bool
) -> Decisions[int]:
    """Creates as many of a job's missing trainers as capacity allows; a starting job gets all or none.

    A starting job's parameter servers are created with them. Surplus in the same quota counts as
    reclaimable too: it is released if all missing trainers then fit.

    Returns:
        The number of trainers to create.
    """
    missing = yield from _covered_by_own_quota(book, entry, missing)
    if missing <= 0:
        return 0
    gang = Gang(book, entry, missing, held, has_turn=has_turn)
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

    For a starting job, the quota must cover all of them; otherwise the result is 0. The check is needed
    because other jobs in the queue may have started since the plan began.
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
