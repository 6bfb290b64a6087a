"""Rule 5, admission: surplus gives way to a minimum that the namespace's own ResourceQuota refuses.

Kubernetes does not say whose pods fill a quota. Those of EDL in the namespace are known: where the end of
surplus makes room for the whole minimum, enough of it is released, the largest shares first, and
none is added in the namespace until the minimum has had a time to start. Whoever fills the quota again, or
has one that other pods use, gets further releases at ever longer intervals.
"""

from collections.abc import Mapping

from policy.admission import quota_refusal
from policy.backoff import pause_s
from policy.cluster import amounts
from policy.cluster.quota_amounts import of_pod, with_limits
from policy.cluster.snapshot import Pod
from policy.planning.ceilings import NOTHING
from policy.planning.cycle_state import CycleState
from policy.planning.job_draft import JobDraft
from policy.reasons import Reason

_HOLD_S = 60.0
"""How long a namespace gets no surplus after a release: trainers end, and the job is tried again."""
_AGAIN_S = (120.0, 3600.0)
"""First and longest pause between releases for one job."""


def relieve(state: CycleState, draft: JobDraft, missing: int) -> None:
    """Releases surplus of a refused job's namespace where that lets its minimum start.

    Args:
        state: The plan so far.
        draft: A job that the API server refuses now.
        missing: Number of trainers that it lacks.
    """
    number, last_s = state.history.quota_reliefs.get(draft.job.uid, (0, 0.0))
    if number and state.now_s < last_s + pause_s(*_AGAIN_S, number):
        return
    backoff = state.creation_backoffs.get(draft.job.uid)
    missing -= draft.initial_count - draft.count  # trainers of a partial start, taken back by now
    refusal = draft.job.refusal or (backoff.error if backoff is not None else "")
    lacking = _lacking(draft, missing, quota_refusal.unused(refusal))
    victims = _victims(state, draft, lacking) if lacking else []
    for owner, pod in victims:
        state.release(owner, pod, Reason.QUOTA_REACHED, {"job": draft.key})
    if victims:
        state.quota_reliefs.add(draft.job.uid)
        state.awaiting_quota[draft.job.namespace] = draft.key


def hold(state: CycleState, draft: JobDraft) -> None:
    """Keeps what was released for a job that lacks trainers from its namespace's surplus for a while."""
    number, last_s = state.history.quota_reliefs.get(draft.job.uid, (0, 0.0))
    backoff = state.creation_backoffs.get(draft.job.uid)
    next_try_s = backoff.until_s if backoff is not None else last_s
    if number and state.now_s < max(last_s, next_try_s) + _HOLD_S:
        state.awaiting_quota[draft.job.namespace] = draft.key


def holds_surplus(state: CycleState, draft: JobDraft) -> bool:
    """Whether a job gets no surplus because a minimum of its namespace has it; records that reason."""
    waiting = state.awaiting_quota.get(draft.job.namespace)
    if waiting is None:
        return False
    draft.set_reason(Reason.QUOTA_REACHED, {"job": waiting})
    return True


def _lacking(draft: JobDraft, missing: int, unused: Mapping[str, int]) -> dict[str, int]:
    """Resource -> what the quota has too little of for the missing trainers and servers."""
    job, servers = draft.job, draft.job.servers
    needed = amounts.scaled(with_limits(job.requests, job.limits), missing)
    if servers is not None:
        of_server = with_limits(servers.requests, NOTHING)
        needed = amounts.plus(needed, amounts.scaled(of_server, draft.servers_to_start))
    return {n: needed[n] - unused[n] for n in unused if needed.get(n, 0) > unused[n]}


def _victims(
    state: CycleState, draft: JobDraft, lacking: dict[str, int]
) -> list[tuple[JobDraft, Pod]]:
    """Surplus whose end frees all that is lacking, the largest shares first; empty where none does."""
    donors = {
        donor.key: (donor, donor.spare)
        for donor in state.drafts
        if donor.job.namespace == draft.job.namespace and donor.job.managed and donor is not draft
    }
    victims: list[tuple[JobDraft, Pod]] = []
    taken = dict.fromkeys(donors, 0)
    while any(amount > 0 for amount in lacking.values()):
        left = [(state.measure(d, d.count - taken[k]), k) for k, (d, s) in donors.items() if s]
        if not left:
            return []
        _, key = max(left)
        donor, spare = donors[key]
        pod = spare.pop(0)
        has = of_pod(donor.job, pod)
        if any(has.get(name, 0) > 0 for name, amount in lacking.items() if amount > 0):
            amounts.subtract(lacking, {name: has.get(name, 0) for name in lacking})
            victims.append((donor, pod))
            taken[key] += 1
    return victims
