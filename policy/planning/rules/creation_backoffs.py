"""Jobs whose new trainers are refused or never placed: they are held back, each for itself."""

from policy.cluster.snapshot import Pod
from policy.decisions import Figure, time
from policy.names import Tier
from policy.planning import ceilings
from policy.planning.creation_backoff import CreationBackoff, unplaced
from policy.planning.cycle_state import CycleState
from policy.planning.job_draft import JobDraft
from policy.reasons import Reason


def is_stuck(state: CycleState, draft: JobDraft, pod: Pod) -> bool:
    """Whether a waiting trainer waits for something else than kube-scheduler's next free moment."""
    return pod.refused or pod.gated or draft.job.uid in state.creation_backoffs


def is_refused(state: CycleState, draft: JobDraft) -> bool:
    """Whether the API server refuses further trainers of a job for now; records that reason.

    So does a job of which that is not known yet.
    """
    backoff = state.creation_backoffs.get(draft.job.uid)
    if draft.job.unprobed:
        draft.set_reason(Reason.CHECKING)
        return True
    if draft.job.refusal:
        draft.set_reason(Reason.REFUSED, {"error": draft.job.refusal})
        return True
    if backoff is None or not backoff.error or _had_more(state, draft, backoff):
        return False
    if backoff.until_s <= state.now_s:
        return False
    draft.set_reason(Reason.REFUSED, {"error": backoff.error})
    return True


def holds_surplus(state: CycleState, draft: JobDraft) -> bool:
    """Whether a job gets no further surplus trainer for now; records that reason.

    After the pause it gets one, or as many as its next allowed size takes. While trainers have
    scheduling gates, from the template or an admission webhook, more would have them too.
    """
    if is_refused(state, draft):
        return True
    gated = sum(pod.gated for pod in draft.waiting)
    if gated:
        draft.set_reason(Reason.GATED, {"gated": gated})
        return True
    backoff = state.creation_backoffs.get(draft.job.uid)
    if backoff is None or _had_more(state, draft, backoff):
        return False
    trying = bool(draft.creates[Tier.SURPLUS] or draft.waiting)
    if backoff.until_s <= state.now_s and not trying:
        return False
    if backoff.error:
        draft.set_reason(Reason.REFUSED, {"error": backoff.error})
    else:
        until = time(backoff.until_s)
        draft.set_reason(Reason.UNPLACED, {"trainers": backoff.trainers, "until": until})
    return True


def may_receive(state: CycleState, draft: JobDraft) -> bool:
    """Whether other jobs give trainers to a job: for sizes that came to nothing rarely, one at a time.

    None where a minimum of its namespace has what a ResourceQuota leaves.
    """
    if draft.job.namespace in state.awaiting_quota:
        return False
    backoff = state.creation_backoffs.get(draft.job.uid)
    if backoff is None:
        return True
    if draft.expected_count:
        return False
    return _had_more(state, draft, backoff) or backoff.allows_move(state.now_s)


def _had_more(state: CycleState, draft: JobDraft, backoff: CreationBackoff) -> bool:
    """Whether a job has had a larger size than now; of trainers between two sizes none stays."""
    return draft.count < ceilings.floor_size(state.policy, draft.job, backoff.trainers)


def record_size(state: CycleState, draft: JobDraft, excess: int) -> None:
    """Lengthens the pause of a job for trainers that its back-off keeps from the next size."""
    backoff = state.creation_backoffs.get(draft.job.uid)
    if backoff is not None:
        state.creation_backoffs[draft.job.uid] = backoff.after_vain(excess)


def record_unplaced(state: CycleState, draft: JobDraft, pod: Pod) -> None:
    """Backs a job off whose trainer is withdrawn although a node has room for it.

    Only where kube-scheduler has tried it: one that is away says nothing about the job. Not while
    it places others of the job's trainers: then it is only slow. Trainers of one try count once.
    """
    if not pod.refused:
        return
    since_s = state.now_s - state.policy.stability.withdraw_after_seconds
    first_seen = state.cluster.first_seen
    if any(t.node and first_seen.started_s(t, state.now_s) > since_s for t in draft.live):
        return
    before = state.creation_backoffs.get(draft.job.uid)
    if before is None or first_seen.created_s(pod, state.now_s) > before.last_s:
        placed = draft.count - len(draft.waiting)
        state.creation_backoffs[draft.job.uid] = unplaced(
            before, trainers=placed, now_s=state.now_s
        )


def take_back_partial_starts(state: CycleState) -> None:
    """Releases the first trainers of a job where the API server refused some of them."""
    for draft in state.drafts:
        backoff = state.creation_backoffs.get(draft.job.uid)
        if backoff is None or not backoff.partial or draft.guaranteed >= draft.job.min_trainers:
            continue
        figures: dict[str, Figure] = {
            "live": len(draft.live),
            "min": draft.job.min_trainers,
            "error": backoff.error,
        }
        for pod in tuple(draft.live):
            state.release(draft, pod, Reason.START_REFUSED, figures)
