"""Rule 2, scheduling: pods that wait for a scheduler that training does not use any more go.

Without the extender's entries no scheduler finds a node for a pod with the marker resource. Surplus
would be withdrawn after a while anyway; guaranteed trainers and parameter servers wait for ever.
Rules 3 and 5 create them again, for the scheduler in force.
"""

from policy.cluster.snapshot import Pod
from policy.names import TRAINER_RESOURCE
from policy.planning.cycle_state import CycleState
from policy.planning.job_draft import JobDraft
from policy.reasons import Reason


def replace_outdated(state: CycleState) -> None:
    """Releases waiting trainers and parameter servers that were created for another scheduler."""
    for draft in state.drafts:
        if not (draft.job.managed and draft.grows):
            continue
        waiting = (pod for pod in draft.live if not pod.node)
        for pod in [pod for pod in waiting if _is_outdated(state, draft, pod)]:
            draft.masterless = draft.masterless or pod.master
            state.release(draft, pod, Reason.SCHEDULER_CHANGED, {"why": _why(state, draft, pod)})
        for pod in state.cluster.servers_of(draft.job):
            if not (pod.deleting or pod.terminal) and _is_outdated(state, draft, pod):
                state.release_server(draft, pod, Reason.SCHEDULER_CHANGED)


def _why(state: CycleState, draft: JobDraft, pod: Pod) -> str:
    scheduler = state.history.scheduling.scheduler_of(draft.job.scheduler)
    if pod.scheduler != scheduler:
        return f"it waits for {pod.scheduler}, but trainers now use {scheduler}"
    return f"it requests {TRAINER_RESOURCE}, but {scheduler} is not known to have the extender"


def _is_outdated(state: CycleState, draft: JobDraft, pod: Pod) -> bool:
    """Whether a pod has no node, was created for another scheduler, and has waited a while.

    The delay keeps pods from being replaced again and again where the webhook learns of a change
    after the reconciler.
    """
    return (
        not (pod.node or pod.nominated)
        and state.waited_s(pod) >= state.policy.stability.withdraw_after_seconds
        and state.history.scheduling.is_outdated(pod, draft.job)
    )
