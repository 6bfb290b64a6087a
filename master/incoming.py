"""The commands of calls: what a checked body asks of the ledger. Pure.

Calls for work are the most frequent lines of the journal, so they have only the fields that the body
has; all others are written with the defaults of the protocol.
"""

from master.commands import (
    Acknowledgement,
    Join,
    Lead,
    LeaseEntry,
    Leave,
    LostShare,
    More,
    Rewind,
    Rollback,
    TaskFailure,
    Work,
)
from master.protocol import (
    DoneTask,
    FailedTask,
    JoinRequest,
    LeaveRequest,
    ReturnedLease,
    RollbackReport,
    WorkRequest,
)
from master.rewind_protocol import RewindRequest


def join(body: JoinRequest, trained: dict[str, int]) -> Join:
    """A trainer's join.

    Args:
        body: The call.
        trained: Task -> records of it that the previous process of the name had trained.
    """
    done = [Acknowledgement(d.task, d.attempt, d.records, d.steps, d.metrics) for d in body.done]
    leases = [LeaseEntry(lease.task, lease.attempt) for lease in body.held]
    lead = None
    if body.lead is not None:
        lead = Lead(body.lead.dataset, body.lead.term, body.lead.begins)
    return Join(body.trainer, body.incarnation, tuple(done), tuple(leases), lead, trained=trained)


def work(body: WorkRequest) -> Work:
    """A call for work, before it waits."""
    sent = body.model_fields_set
    return Work(
        body.trainer,
        body.incarnation,
        tuple(map(_acknowledgement, body.done)) if "done" in sent else None,
        tuple(map(_failure, body.failed)) if "failed" in sent else None,
        tuple(map(_returned, body.back)) if "back" in sent else None,
        body.want if "want" in sent else None,
        body.kinds,
        body.datasets,
        body.call,
    )


def after_waiting(work: Work) -> More:
    """What a call for work that waited executes next."""
    return More(work.trainer, work.incarnation, work.want, work.kinds, work.datasets, work.call)


def leave(body: LeaveRequest, trained: dict[str, int]) -> Leave:
    """A trainer's end.

    Args:
        body: The call.
        trained: Task -> records of it that were trained, by its heartbeats.
    """
    trained = trained | {lease.task: lease.trained for lease in body.back if lease.trained}
    counted = tuple(_returned(lease) for lease in body.back if lease.counted)
    return Leave(body.trainer, body.incarnation, counted or None, trained=trained)


def rewind(body: RewindRequest) -> Rewind:
    """A rewind to the position of a model that is restored."""
    position = None if body.position is None else body.position.model_dump()
    return Rewind(
        body.trainer,
        body.incarnation,
        body.dataset,
        body.event,
        body.reason,
        body.version,
        position,
        body.remaining,
        body.term,
        body.generation,
        body.ticket,
    )


def rollback(body: RollbackReport) -> Rollback:
    """A trainer's report of lost work."""
    lost = None
    if (share := body.share) is not None:
        pending = share.pending_steps, share.pending_records
        lost = LostShare(share.holder, share.steps, share.records, *pending)
    return Rollback(
        body.trainer, body.incarnation, body.event, body.reason, body.steps, body.records, lost
    )


def _acknowledgement(done: DoneTask) -> Acknowledgement:
    sent = done.model_fields_set
    return Acknowledgement(
        done.task,
        done.attempt,
        done.records if "records" in sent else None,
        done.steps if "steps" in sent else None,
        done.metrics if "metrics" in sent else None,
    )


def _failure(failed: FailedTask) -> TaskFailure:
    return TaskFailure(
        failed.task,
        failed.attempt,
        failed.error,
        failed.record,
        failed.transient,
        failed.counted or None,
    )


def _returned(lease: ReturnedLease) -> LeaseEntry:
    trained = lease.trained if "trained" in lease.model_fields_set else None
    if not lease.counted:
        return LeaseEntry(lease.task, lease.attempt, trained)
    return LeaseEntry(
        lease.task, lease.attempt, trained, lease.counted, lease.steps, lease.metrics or None
    )
