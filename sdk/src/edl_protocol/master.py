"""The calls of a job's master, version 3: their paths, the fields of their bodies, and limits. Pure.

The master checks bodies by these classes, and its OpenAPI description is made from them. Its client in
the SDK constructs them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal, Optional

from edl_protocol.fields import MOST, Call, Count, Limits, Message, Positive, Text

VERSION = 3
"""Grows when calls get fields that an older master would not know. A caller of a newer version, by
the header `VERSION_HEADER`, may send fields that a master of version 2 or later does not know: the
master ignores them."""
VERSION_HEADER = "EDL-Protocol"
MAX_BYTES = 8 << 20
"""Bytes of a call's body."""
MAX_WAIT_S = 30.0
MAX_NAME_CHARS = 253
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$"
MAX_REASON_CHARS = 2000
MAX_METRICS = 512
"""Metrics of a task: a histogram of scores in 200 bins is 400 of them."""
MAX_METRIC_NAME_CHARS = 64
MAX_MEMBERS = 4096
MAX_KEYS = 4096
"""Keys of one call."""
MAX_VALUE_BYTES = 1 << 20
"""Bytes of a key's value."""
MAX_EVALUATIONS = 1024
"""Evaluations of one data set that are kept, or that are pending."""
MODEL_GONE = "left"
"""Metric reported for tasks whose model no longer exists; it invalidates the evaluation."""
STATUS_PATH = "/v1/status"
EVALUATION_PATH = "/v1/evaluations/{model_version}"

Name = Annotated[str, Limits(min_length=1, max_length=MAX_NAME_CHARS, pattern=NAME_PATTERN)]
TaskId = Annotated[str, Limits(min_length=1, max_length=300)]
Kind = Literal["training", "evaluation", "prediction", "export"]
Metric = Optional[Annotated[float, Limits(allow_inf_nan=True)]]
MetricName = Annotated[str, Limits(max_length=MAX_METRIC_NAME_CHARS)]
Metrics = Annotated[dict[MetricName, Metric], Limits(max_length=MAX_METRICS)]
RoundNumber = Annotated[int, Limits(ge=0, le=1 << 52)]
WaitSeconds = Annotated[float, Limits(ge=0, le=MAX_WAIT_S)]
Address = Annotated[str, Limits(max_length=300, pattern=r"^[^\s\x00-\x1f]+:[0-9]{1,5}$")]
CodeName = Annotated[str, Limits(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
CodeText = Annotated[str, Limits(max_length=300)]
Extra = Annotated[str, Limits(max_length=1024, pattern=r"^[\x20-\x7e]*$")]
Reason = Annotated[str, Limits(min_length=1, max_length=MAX_REASON_CHARS)]
Key = Annotated[str, Limits(min_length=1, max_length=250)]
Keys = Annotated[list[Key], Limits(min_length=1, max_length=MAX_KEYS)]
Value = Annotated[str, Limits(max_length=(MAX_VALUE_BYTES + 2) // 3 * 4)]
_MAX_AMOUNT = 1 << 31
_NAME = re.compile(NAME_PATTERN)


def is_name(text: str) -> bool:
    """Whether a text may name a trainer or a data set."""
    return len(text) <= MAX_NAME_CHARS and _NAME.fullmatch(text) is not None


@dataclass(frozen=True)
class ProcessRequest(Call):
    """A call of one process of a trainer."""

    trainer: Name
    """The trainer's name, the same for every process that replaces it."""
    incarnation: Name
    """A random name of one process."""


@dataclass(frozen=True)
class PathName(Message):
    """A name in a path."""

    name: Name


@dataclass(frozen=True)
class LeaseRef(Message):
    """A reference to a lease."""

    task: TaskId
    attempt: Count


@dataclass(frozen=True)
class DoneTask(LeaseRef):
    """A task whose records were all trained."""

    records: Count = 0
    steps: Count = 0
    metrics: Metrics = field(default_factory=dict)
    """Means over the task's records; null where a mean is not finite, as a loss may be."""


@dataclass(frozen=True)
class FailedTask(LeaseRef):
    """A task that cannot be trained."""

    error: Text
    record: Count | None = None
    """The record at fault, where it is known."""
    transient: bool = False
    """Whether the storage failed, and not the data: the same read may work later."""
    counted: Count = 0
    """Records of its front that were trained, and are counted."""


@dataclass(frozen=True)
class HeldLease(LeaseRef):
    """A lease and its progress."""

    trained: Count = 0
    """Records trained and not acknowledged."""


@dataclass(frozen=True)
class ReturnedLease(HeldLease):
    """A lease that its trainer gives up."""

    counted: Count = 0
    """The first of these records, which are counted: only the others are leased again."""
    steps: Count = 0
    metrics: Metrics = field(default_factory=dict)
    """Means over the records that are counted."""


@dataclass(frozen=True)
class LeadershipClaim(Message):
    """Claims the lead of a group; refused (409) where another process has the newest model.

    The error's field is `term` where this model lacks acknowledged records, and `incarnation`
    where another process leads since then.
    """

    dataset: Name
    """The data set on which the group trains."""
    term: Count
    """The newest term in which this model was trained; 0 where it was not."""
    begins: bool = True
    """Whether the next term begins; False where a leader that seemed dead continues in its own."""


@dataclass(frozen=True)
class JoinRequest(ProcessRequest):
    """A trainer begins, or connects to a new master."""

    PATH = "/v1/join"

    done: list[DoneTask] = field(default_factory=list)
    """Acknowledgements that the previous master had answered, beyond `safe`."""
    held: list[LeaseRef] = field(default_factory=list)
    lead: LeadershipClaim | None = None
    """Set by the leader of a group that trains one model together."""


@dataclass(frozen=True)
class DatasetFile(Message):
    """One file of a data set."""

    name: Annotated[str, Limits(min_length=1, max_length=1000)]
    records: Count


@dataclass(frozen=True)
class DatasetDescription(Call):
    """A data set: exactly one of records, files and stream."""

    METHOD = "PUT"
    PATH = "/v1/datasets/{name}"

    task_records: Positive
    """Records that are leased together."""
    records: Positive | None = None
    files: Annotated[list[DatasetFile], Limits(min_length=1)] | None = None
    stream: bool = False
    """Endless: tasks are numbered ranges, until the job has done its steps."""
    epochs: Count = 1
    """For evaluation: rounds that run without a request, with model version 0."""
    shuffle_seed: Annotated[int, Limits(ge=-MOST, le=MOST)] | None = None
    record_order: Annotated[str, Limits(min_length=1, max_length=100)] | None = None
    """Set where an epoch permutes records: starts and ends of leases are then places in its order,
    which trainers compute. It names the method and the files, so that all compute the same."""
    kind: Kind = "training"
    overlap: bool = False
    """Whether an epoch may begin while tasks of the previous one are still leased."""

    def __post_init__(self) -> None:
        """Checks the rules for several fields; a message names the wrong one first.

        Raises:
            ValueError: A rule is broken.
        """
        if (self.records is not None) + (self.files is not None) + self.stream != 1:
            raise ValueError("give exactly one of records, files and stream")
        if self.files is not None and not any(file.records for file in self.files):
            raise ValueError("files are all empty: there is nothing to train on")
        self._check_epochs()
        records = sum(file.records for file in self.files or ()) or self.records or 0
        if records > MOST:
            raise ValueError(f"files add up to {records} records; {MOST} are the most")
        if records * self.epochs > MOST:
            raise ValueError(
                f"epochs are {self.epochs} of {records} records each; {MOST} records in all "
                "epochs together are the most"
            )

    def _check_epochs(self) -> None:
        if self.epochs < 1 and self.kind != "evaluation":
            raise ValueError("epochs must be at least 1")
        if self.stream and self.epochs != 1:
            raise ValueError("epochs must be 1 for a stream, which never ends")
        if self.kind == "evaluation" and self.epochs > MAX_EVALUATIONS:
            raise ValueError(f"epochs must be at most {MAX_EVALUATIONS} for an evaluation")


@dataclass(frozen=True)
class WorkRequest(ProcessRequest):
    """Acknowledges and leases in one call."""

    PATH = "/v1/work"

    done: list[DoneTask] = field(default_factory=list)
    failed: list[FailedTask] = field(default_factory=list)
    back: list[ReturnedLease] = field(default_factory=list)
    """Leases that are returned untrained, or partly trained."""
    want: Annotated[int, Limits(ge=0, le=4096)] = 0
    wait_s: WaitSeconds = 0.0
    """How long to wait for tasks, where others lease them all."""
    kinds: list[Kind] | None = None
    datasets: list[Name] | None = None
    """Only tasks of these data sets are leased, and the state "done" is about these."""
    call: Positive | None = None
    """Number of the call, one more than before; the same one again gets the same answer."""


@dataclass(frozen=True)
class HeartbeatRequest(ProcessRequest):
    """A trainer is alive."""

    PATH = "/v1/heartbeat"

    held: list[HeldLease] = field(default_factory=list)


@dataclass(frozen=True)
class HeartbeatsRequest(Call):
    """Several trainers are alive, as processes of one pod; each has an answer or an error."""

    PATH = "/v1/heartbeats"

    heartbeats: Annotated[list[HeartbeatRequest], Limits(min_length=1, max_length=256)]


@dataclass(frozen=True)
class LeaveRequest(ProcessRequest):
    """A trainer ends; all its leases are returned."""

    PATH = "/v1/leave"

    back: list[ReturnedLease] = field(default_factory=list)


@dataclass(frozen=True)
class TermRequest(ProcessRequest):
    """The leader of a group begins the next term: with other members, in another round."""

    PATH = "/v1/terms"

    dataset: Name
    term: Count
    """The newest term in which its model was trained."""


@dataclass(frozen=True)
class CheckpointRequest(ProcessRequest):
    """A trainer asks to save a checkpoint."""

    PATH = "/v1/checkpoints"

    newest: Count = 0
    """Version of the newest checkpoint that exists: the ticket's version is greater."""


@dataclass(frozen=True)
class CheckpointReport(Call):
    """The result of saving a checkpoint."""

    METHOD = "PUT"
    PATH = "/v1/checkpoints/{ticket}"

    path: Text
    step: Count = 0
    ok: bool = True


@dataclass(frozen=True)
class EvaluationRequest(Call):
    """Asks for an evaluation."""

    PATH = "/v1/evaluations"

    model_version: Count
    dataset: Name


@dataclass(frozen=True)
class RoundMember(Message):
    """A member of a round."""

    trainer: Name
    incarnation: Name
    address: Address
    extra: Extra = ""
    """What it told the others with the round."""


@dataclass(frozen=True)
class RoundClaim(Message):
    """A round of which the caller is a member."""

    round: RoundNumber
    members: Annotated[list[RoundMember], Limits(min_length=1, max_length=MAX_MEMBERS)]
    """By rank."""


@dataclass(frozen=True)
class RendezvousPoll(ProcessRequest):
    """A member of a synchronous job reports its state, and asks for the newest round."""

    PATH = "/v1/rendezvous"

    address: Address
    """Where the other members reach it."""
    code: Annotated[dict[CodeName, CodeText], Limits(max_length=16)] = field(default_factory=dict)
    """What must be equal for all members: a summary of the program."""
    extra: Extra = ""
    """What all members of the next round receive with it, such as a handle of a process group:
    printable ASCII."""
    known: bool = False
    """Whether it is a member of the round `seen` and knows all others: the answer has only what
    differs from them, and asks for the `claim` where the master does not know that round."""
    seen: RoundNumber = 0
    """The newest round that it knows."""
    at: RoundNumber = 0
    """The round that its training has reached; 0 for none."""
    ready: bool = False
    """Whether it can train in that round."""
    broken: bool = False
    """Whether it cannot continue in that round, and needs a later one."""
    left: bool = False
    """Whether it has left; a master that has just started does not know."""
    busy: bool = False
    """Whether it evaluates, or does something else for which the others must wait."""
    waiting_s: Annotated[float, Limits(ge=0, le=1e9)] = 0.0
    """How long its training has waited for other members; 0 where it does not."""
    probe: Count = 0
    """The newest probe number that it received."""
    void: RoundNumber | None = None
    """The newest round that cannot continue, as far as it knows; others may still wait there for a
    member that has broken it off and entered a later one. None where it need not learn of that."""
    claim: RoundClaim | None = None
    """Its round, for a master that has just started; with `known`, only when it is asked for."""
    wait_s: WaitSeconds = 0.0
    """How long to wait for news; a member that does not call for 2 s more, and 3 s at least, is
    dropped."""


@dataclass(frozen=True)
class RendezvousLeave(ProcessRequest):
    """Excludes a member from later rounds."""

    PATH = "/v1/rendezvous/leave"


@dataclass(frozen=True)
class JobFailure(ProcessRequest):
    """A trainer ends the job."""

    PATH = "/v1/fail"

    reason: Reason


@dataclass(frozen=True)
class RollbackShare(Message):
    """The exact losses of one trainer of parameter servers, in its own batches."""

    holder: Name
    """The trainer that lost them: its share counts once, however often it is reported."""
    steps: Count = 0
    """Batches that all servers had acknowledged, and that are lost."""
    records: Count = 0
    pending_steps: Count = 0
    """Batches that were in flight: some servers may have received them, and they are sent again."""
    pending_records: Count = 0


@dataclass(frozen=True)
class RollbackReport(ProcessRequest):
    """Work was lost together with the model's state."""

    PATH = "/v1/setbacks"

    event: Name
    """Identifies the event: all reports of it add to the same rollback."""
    reason: Reason
    steps: Count = 0
    """Lost steps in total, as far as this trainer knows; may include pending batches."""
    records: Count = 0
    share: RollbackShare | None = None


@dataclass(frozen=True)
class KeyRequest(ProcessRequest):
    """A call about keys of a round, which its members share."""

    round: RoundNumber
    """A round of which the caller is a member."""


@dataclass(frozen=True)
class KeySet(KeyRequest):
    """Sets a key of a round."""

    PATH = "/v1/rounds/keys/set"

    key: Key
    value: Value
    """Bytes, as base64."""


@dataclass(frozen=True)
class KeyDelete(KeyRequest):
    """Deletes keys of a round that nobody needs any more, where they are set."""

    PATH = "/v1/rounds/keys/delete"

    keys: Keys


@dataclass(frozen=True)
class KeyAdd(KeyRequest):
    """Adds to a key of a round, a counter whose value is a decimal number; 0 where it is missing."""

    PATH = "/v1/rounds/keys/add"

    key: Key
    amount: Annotated[int, Limits(ge=-_MAX_AMOUNT, le=_MAX_AMOUNT)]
    call: Positive
    """Number of the call, one more than before; the same one again gets the same answer."""


@dataclass(frozen=True)
class KeyGet(KeyRequest):
    """Reads keys of a round, and waits until all of them are set."""

    PATH = "/v1/rounds/keys/get"

    keys: Keys
    wait_s: WaitSeconds = 0.0
    """How long to wait; the answer then has the keys that are set."""


@dataclass(frozen=True)
class EpochPosition(Message):
    """The trained part of one epoch."""

    number: Count
    cursor: Count
    """Places in the epoch's order that were reached."""
    todo: list[Annotated[list[Count], Limits(min_length=2, max_length=2)]]
    """Tasks before it that are to do: number, and how many records of its front are trained."""
    ahead: list[Count]
    """Tasks behind it that are not free: done, or among those to do."""
    dropped: Count


@dataclass(frozen=True)
class LedgerPosition(Message):
    """The trained part of a data set."""

    shape: CodeName
    """Stands for the description of the data set."""
    opened: Count
    """Epochs that were begun."""
    open: list[EpochPosition]
    """Those of them that are not complete."""
    totals: Annotated[list[Count], Limits(min_length=4, max_length=4)]
    """Tasks and records that are done, tasks and records that were dropped."""
    steps: Count
    """In tasks of the data set; an older master counted those of all."""


@dataclass(frozen=True)
class PositionRequest(ProcessRequest):
    """Asks for the position in a data set."""

    PATH = "/v1/position"

    dataset: Name
    tasks: list[TaskId] = field(default_factory=list)
    """The answer names those of them that are done or dropped."""


@dataclass(frozen=True)
class RewindRequest(ProcessRequest):
    """A model is restored, and all records that it lacks are trained again; see decision 0032."""

    PATH = "/v1/rewind"

    dataset: Name
    event: Name
    """Identifies the event, as in a report of lost work."""
    reason: Reason
    version: Count
    """The version of the model: evaluations of later versions are discarded."""
    position: LedgerPosition | None
    """The position with the checkpoint; null for the beginning."""
    remaining: dict[TaskId, Count] = field(default_factory=dict)
    """Task -> records of its end that the model lacks, where it has more than the position."""
    term: Count | None = None
    """The term that the caller has begun, as the leader of a group."""
    generation: Count | None = None
    """Otherwise the generation of parameter servers that the caller is about to start,"""
    ticket: Count = 0
    """and its ticket to do so."""
