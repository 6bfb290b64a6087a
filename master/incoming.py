"""Converts the checked bodies of calls into commands of the ledger. Pure.

Most lines of the journal are calls for work. So their commands have None for fields that have the
protocol's defaults, and the journal leaves these fields out.
"""

from dataclasses import asdict
from math import isfinite

from edl_protocol.master import (
    DoneTask,
    FailedTask,
    JoinRequest,
    LeaveRequest,
    Metrics,
    ReturnedLease,
    RewindRequest,
    RollbackReport,
    WorkRequest,
)

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


def join(body: JoinRequest, trained: dict[str, int]) -> Join:
    """Returns the command for a trainer's join.

    Args:
        body: The call.
        trained: Task -> number of its records that the trainer's previous process had trained.
    """
    done = [
        Acknowledgement(d.task, d.attempt, d.records, d.steps, _finite(d.metrics))
        for d in body.done
    ]
    leases = [LeaseEntry(lease.task, lease.attempt) for lease in body.held]
    lead = None
    if body.lead is not None:
        lead = Lead(body.lead.dataset, body.lead.term, body.lead.begins)
    return Join(body.trainer, body.incarnation, tuple(done), tuple(leases), lead, trained=trained)


def work(body: WorkRequest) -> Work:
    """Returns the command that a call for work executes before it waits."""
    return Work(
        body.trainer,
        body.incarnation,
        tuple(map(_acknowledgement, body.done)) or None,
        tuple(map(_failure, body.failed)) or None,
        tuple(map(_returned, body.back)) or None,
        body.want or None,
        body.kinds,
        body.datasets,
        body.call,
    )


def after_waiting(work: Work) -> More:
    """Returns the command that a call for work executes after it has waited."""
    return More(work.trainer, work.incarnation, work.want, work.kinds, work.datasets, work.call)


def leave(body: LeaveRequest, trained: dict[str, int]) -> Leave:
    """Returns the command for a trainer's end.

    Args:
        body: The call.
        trained: Task -> number of its trained records, according to the trainer's heartbeats.
    """
    trained = trained | {lease.task: lease.trained for lease in body.back if lease.trained}
    counted = tuple(_returned(lease) for lease in body.back if lease.counted)
    return Leave(body.trainer, body.incarnation, counted or None, trained=trained)


def rewind(body: RewindRequest) -> Rewind:
    """Returns the command that rewinds a data set to the position of a restored model."""
    position = None if body.position is None else asdict(body.position)
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
    """Returns the command for a trainer's report of lost work."""
    lost = None
    if (share := body.share) is not None:
        pending = share.pending_steps, share.pending_records
        lost = LostShare(share.holder, share.steps, share.records, *pending)
    return Rollback(
        body.trainer, body.incarnation, body.event, body.reason, body.steps, body.records, lost
    )


def _acknowledgement(done: DoneTask) -> Acknowledgement:
    return Acknowledgement(
        done.task,
        done.attempt,
        done.records or None,
        done.steps or None,
        _finite(done.metrics) or None,
    )


def _finite(metrics: Metrics) -> Metrics:
    """Replaces NaN and infinity by None: JSON has neither, so the journal cannot hold them."""
    return {
        name: value if value is not None and isfinite(value) else None
        for name, value in metrics.items()
    }


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
    trained = lease.trained or None
    if not lease.counted:
        return LeaseEntry(lease.task, lease.attempt, trained)
    return LeaseEntry(
        lease.task,
        lease.attempt,
        trained,
        lease.counted,
        lease.steps,
        _finite(lease.metrics) or None,
    )
