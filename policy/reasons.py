"""Stable codes for every decision: the same in results, events, logs and metric labels."""

from enum import StrEnum


class Reason(StrEnum):
    """The reason for a decision. Values are an interface: codes are added, but never renamed."""

    # why a job has its number of trainers
    AT_MAX = "AtMax"
    AT_CEILING = "AtCeiling"
    NO_ROOM = "NoRoom"
    RESERVE_HELD = "ReserveHeld"
    QUOTA_REACHED = "QuotaReached"
    SIZE_NOT_ALLOWED = "SizeNotAllowed"
    GROWING = "Growing"
    WAITING_FOR_ROOM = "WaitingForRoom"
    FITS_NO_NODE = "FitsNoNode"
    QUEUED = "Queued"
    NODES_REQUESTED = "NodesRequested"
    SUSPENDED = "Suspended"
    ENDING = "Ending"
    BACKING_OFF = "BackingOff"
    REPLACING = "Replacing"
    UNPLACED = "Unplaced"
    CHANGED_OFTEN = "ChangedOften"
    GATED = "Gated"
    CHECKING = "Checking"
    INVALID = "Invalid"
    QUARANTINED = "Quarantined"

    # why a trainer is released
    ABOVE_MAX = "AboveMax"
    ABOVE_MIN = "AboveMin"
    SERVICES_FIRST = "ServicesFirst"
    RESERVE_RESTORED = "ReserveRestored"
    FAIR_SHARE = "FairShare"
    SHARE_RETURNED = "ShareReturned"
    NOT_SCHEDULED = "NotScheduled"
    NODES_NOT_ADDED = "NodesNotAdded"
    NODE_NOT_NEEDED = "NodeNotNeeded"
    START_REFUSED = "StartRefused"
    JOB_STOPPED = "JobStopped"
    MASTER_MOVES = "MasterMoves"
    SERVER_MOVES = "ServerMoves"
    SCHEDULER_CHANGED = "SchedulerChanged"

    # why a trainer was not created, or why a job has no more trainers
    REFUSED = "Refused"

    # why a trainer is created
    GUARANTEED = "Guaranteed"
    SURPLUS = "Surplus"

    # why a pod cannot run on a node
    NODE_UNKNOWN = "NodeUnknown"
    NODE_NOT_READY = "NodeNotReady"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    NODE_TAINTED = "NodeTainted"
    NODE_SELECTOR = "NodeSelectorMismatch"
    NODE_POOL = "OutsideNodePools"
    NODE_PROMISED = "NodePromisedToService"
    NODE_COOLING_DOWN = "NodeCoolingDown"
    NODE_AVOIDED = "NodeAvoided"


RELEASES = (
    Reason.ABOVE_MAX,
    Reason.ABOVE_MIN,
    Reason.SERVICES_FIRST,
    Reason.RESERVE_RESTORED,
    Reason.FAIR_SHARE,
    Reason.NOT_SCHEDULED,
    Reason.NODES_NOT_ADDED,
    Reason.NODE_NOT_NEEDED,
    Reason.START_REFUSED,
    Reason.JOB_STOPPED,
    Reason.MASTER_MOVES,
    Reason.SERVER_MOVES,
    Reason.SCHEDULER_CHANGED,
    Reason.QUOTA_REACHED,
    Reason.SHARE_RETURNED,
)
"""Why a trainer is released."""


class Observation(StrEnum):
    """Codes of observations, in addition to `Reason`. Codes are added, but never renamed."""

    PREEMPTED = "Preempted"
    """kube-scheduler preempted a trainer for a service."""
    EVICTED = "Evicted"
    """A drain, a user or a lost node ended a trainer."""
    TRAINER_FAILED = "TrainerFailed"
    JOB_COMPLETE = "JobComplete"
    JOB_FAILED = "JobFailed"
    JOB_DELETED = "JobDeleted"
    RECLAIMING = "Reclaiming"
    """Services in a burst wait for capacity that trainers use."""
    RECLAIMED = "Reclaimed"
    """The burst is over: all its services run or were deleted."""
    OBJECTIVE_MISSED = "ObjectiveMissed"
    """A service took longer than the reclaim objective allows."""
    OBJECTIVE = "Objective"
    """The state of the reclaim objective."""
