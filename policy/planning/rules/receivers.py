"""The jobs that moves help: those that lack room, and that others give trainers for now."""

from policy.planning import ceilings
from policy.planning.cycle_state import CycleState
from policy.planning.job_draft import JobDraft
from policy.planning.rules import creation_backoffs, demand_changes
from policy.reasons import Reason

CURED_BY_MOVE = (Reason.NO_ROOM, Reason.RESERVE_HELD, Reason.QUOTA_REACHED)
"""Reasons that another job's release can remove."""


def lacking(state: CycleState) -> list[tuple[bool, int, float, str, JobDraft]]:
    """The jobs that a move helps, each with its rank before it."""
    return [
        (*rank(state, draft), draft)
        for draft in state.drafts
        if draft.reason in CURED_BY_MOVE and draft.admitted and may_receive(state, draft)
    ]


def rank(state: CycleState, draft: JobDraft) -> tuple[bool, int, float, str]:
    """Sort key of jobs that receive moves, unique for each."""
    return *state.standing(draft), state.expected_measure(draft), draft.key


def next_step(state: CycleState, receiver: JobDraft) -> int:
    """Number of trainers that it lacks to its next allowed size; 0 where there is none."""
    expected_count = receiver.count + receiver.expected_count
    return ceilings.next_size(state.policy, receiver.job, expected_count) - expected_count


def may_receive(state: CycleState, draft: JobDraft) -> bool:
    """Whether other jobs give trainers for the next size of a job; records the reason where it is its doing."""
    if not creation_backoffs.may_receive(state, draft):
        return False
    if not draft.demand_history.periods:
        return True
    return demand_changes.may_take(draft, next_step(state, draft))
