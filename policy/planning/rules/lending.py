"""Rule 7, lending: surplus that a queue borrows is returned at once when the owner asks for it.

The owner asks by a job that could grow within its queue's nominal quota and lacks room or quota. Neither
the pace of moves nor the shares of jobs count here: in one plan all goes that the owner can use. A queue
never gives below its own quota, but for the rest of the last trainer, and minimums never borrow
(`policy.planning.borrowing`), so none gives way. What was returned is not asked back: the queue that gave it would
have to borrow again.
"""

from heapq import heapify, heappop, heappush

from policy.cluster import amounts
from policy.cluster.snapshot import Pod, Resources
from policy.decisions import Figures
from policy.planning.cycle_state import CycleState
from policy.planning.job_draft import JobDraft
from policy.planning.rules.admission import explain_own_quota
from policy.planning.rules.moves import Donors, Move
from policy.planning.rules.receivers import CURED_BY_MOVE, lacking, may_receive, next_step, rank
from policy.reasons import Reason


def return_shares(state: CycleState) -> None:
    """Releases borrowed surplus for jobs that lack part of their own queue's quota.

    Not while services reclaim capacity, because they decide how much is left to share.
    """
    if state.burst or not state.quotas.borrowing:
        return
    owners = [entry for entry in lacking(state) if _asks(state, entry[-1])]
    heapify(owners)
    donors = Donors(state)
    ruled_out_nodes: dict[tuple[object, ...], set[str]] = {}
    failed_steps: dict[tuple[object, ...], int] = {}
    """Kind of owner -> its smallest step that nothing could be given for: later ones find less."""
    while owners:
        *_, owner = heappop(owners)
        job = owner.job
        key = tuple(sorted(job.requests.items())), job.constraints, owner.reason, job.queue
        nodes = ruled_out_nodes.setdefault(key, set())
        kind, step = (job.namespace, *key), next_step(state, owner)
        if step >= failed_steps.get(kind, step + 1):
            continue
        move = Move(state, owner, donors, _Return(state, owner), nodes)
        if not move.possible:
            failed_steps[kind] = step
            continue
        move.carry_out()
        for donor in {draft.key: draft for draft, _ in move.victims}.values():
            donors.changed(donor)
        if may_receive(state, owner) and _asks(state, owner):
            heappush(owners, (*rank(state, owner), owner))


def release_uncovered(state: CycleState) -> None:
    """Releases guaranteed trainers above their job's minimum that their queue's nominal quota does not cover.

    They count as surplus, and would be a minimum again if that were raised: whoever lowers and raises
    minimums in turn would gather guaranteed trainers. Surplus may take their place.
    """
    for draft in state.drafts if state.quotas.borrowing and state.has_excess else ():
        pods = [pod for pod in draft.surplus if pod.uid in draft.excess]
        covered = state.quotas.room_for_minimum(draft.job, len(pods), 0)
        figures = (
            state.quotas.lack_for_minimum(draft.job, len(pods), 0) if covered < len(pods) else {}
        )
        state.quotas.claim(draft.job, covered, 0)
        for pod in pods[: len(pods) - covered]:
            state.release(draft, pod, Reason.QUOTA_REACHED, figures)


def explain_minimums(state: CycleState) -> None:
    """Records for running jobs that are short what their queue's nominal quota has to do with it.

    They may borrow the rest, as surplus; that there is none to borrow now is not what they lack.
    """
    for draft in state.drafts:
        is_short = draft.covered_min <= draft.count < draft.job.min_trainers
        if is_short and draft.reason in CURED_BY_MOVE:
            explain_own_quota(state, draft, draft.uncovered)


def _asks(state: CycleState, draft: JobDraft) -> bool:
    """Whether a job's next size stays within its queue's own quota."""
    step = next_step(state, draft)
    lends = state.quotas.borrowing.covers(draft.job.queue)
    return step > 0 and lends and not state.quotas.borrows(draft.job, step)


class _Return:
    """The terms of a return: queues give what they borrow, until they borrow nothing."""

    gives_more = True

    def __init__(self, state: CycleState, owner: JobDraft) -> None:
        self._state = state
        self._owner = owner

    def donors(self, donors: Donors) -> dict[str, JobDraft]:
        """The jobs of queues that borrow, the lowest priority first and then the largest share."""
        borrowers = [draft for draft in donors.all() if self._borrowed(draft, {})]
        return {draft.key: draft for draft in sorted(borrowers, key=lambda d: d.priority)}

    def may_give(self, donor: JobDraft, given: int, freed: Resources) -> bool:  # noqa: ARG002
        """Whether the donor's queue still borrows before the last of its trainers goes."""
        before = dict(freed)
        amounts.subtract(before, donor.job.requests)
        return bool(self._borrowed(donor, before))

    def may_leave(self, pod: Pod) -> bool:
        """Any trainer that has a node: one that has none yet soon gets one or is withdrawn."""
        return bool(pod.node)

    def explain(self, donor: JobDraft) -> tuple[Reason, Figures]:
        """What the queue that gives uses, and what it has."""
        requests = self._owner.job.requests
        figures = self._state.quotas.borrowing.figures(donor.job.queue, requests)
        return Reason.SHARE_RETURNED, {**figures, "to": self._owner.key}

    def _borrowed(self, donor: JobDraft, freed: Resources) -> list[str]:
        """What the donor's queue borrows; the owner's borrows nothing, or it would not ask."""
        requests, queue = self._owner.job.requests, donor.job.queue
        return self._state.quotas.borrowing.borrowed(queue, requests, freed)
