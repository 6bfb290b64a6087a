"""The calls of a job's master, version 3: their paths, the fields of their bodies, and limits. Pure.

The master checks bodies against these classes, and makes its OpenAPI description from them. The
master's client in the SDK constructs them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal, Optional

from edl_protocol.fields import MOST, Call, Count, Limits, Message, Positive, Text

VERSION = 3
"""Grows when calls get fields that an older master would not know. A caller names its version in
the header `VERSION_HEADER`. If that version is newer than the master's, a master of version 2 or
later ignores the fields that it does not know."""
VERSION_HEADER = "EDL-Protocol"
MAX_BYTES = 8 << 20
"""Maximum size of a call's body in bytes."""
MAX_WAIT_S = 30.0
MAX_NAME_CHARS = 253
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$"
MAX_REASON_CHARS = 2000
MAX_METRICS = 512
"""Maximum number of metrics of a task: a histogram of scores in 200 bins takes 400."""
MAX_METRIC_NAME_CHARS = 64
MAX_MEMBERS = 4096
MAX_KEYS = 4096
"""Maximum number of keys in one call."""
MAX_VALUE_BYTES = 1 << 20
"""Maximum size of a key's value in bytes."""
MAX_EVALUATIONS = 1024
"""Maximum number of evaluations of one data set that are kept, or that are pending."""
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
    """Returns whether a text may name a trainer or a data set."""
    return len(text) <= MAX_NAME_CHARS and _NAME.fullmatch(text) is not None


@dataclass(frozen=True)
class ProcessRequest(Call):
    """A call of one process of a trainer."""

    trainer: Name
    """The trainer's name; a process that replaces another one has the same name."""
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
    """Means over the task's records; null for a mean that is not finite, such as that of an
    infinite loss."""


@dataclass(frozen=True)
class FailedTask(LeaseRef):
    """A task that cannot be trained."""

    error: Text
    record: Count | None = None
    """The record that caused the failure, if known."""
    transient: bool = False
    """Whether the storage failed rather than the data, so that the same read may work later."""
    counted: Count = 0
    """Number of trained records, from the lease's first record on. They are counted, and not leased
    again."""


@dataclass(frozen=True)
class HeldLease(LeaseRef):
    """A lease and its progress."""

    trained: Count = 0
    """Number of records that were trained but not acknowledged."""


@dataclass(frozen=True)
class ReturnedLease(HeldLease):
    """A lease that its trainer gives up."""

    counted: Count = 0
    """Number of the trained records that are counted, from the first one on. Only the other records
    are leased again."""
    steps: Count = 0
    metrics: Metrics = field(default_factory=dict)
    """Means over the counted records."""


@dataclass(frozen=True)
class LeadershipClaim(Message):
    """Claims the lead of a group; refused (409) if another process has the newest model.

    The error's field is `term` if the caller's model lacks acknowledged records, and `incarnation`
    if another process has taken the lead since.
    """

    dataset: Name
    """The data set on which the group trains."""
    term: Count
    """The newest term in which the caller's model was trained; 0 if it was not trained."""
    begins: bool = True
    """Whether the next term begins; False if a leader that seemed dead continues in its own
    term."""


@dataclass(frozen=True)
class JoinRequest(ProcessRequest):
    """A trainer begins, or connects to a new master."""

    PATH = "/v1/join"

    done: list[DoneTask] = field(default_factory=list)
    """Acknowledgements that the previous master had answered, but that a new one may not know: the
    numbers of their calls are greater than `safe` in the previous master's answers."""
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
    """Describes a data set, with exactly one of records, files and stream."""

    METHOD = "PUT"
    PATH = "/v1/datasets/{name}"

    task_records: Positive
    """Number of records of a task, which are leased together."""
    records: Positive | None = None
    files: Annotated[list[DatasetFile], Limits(min_length=1)] | None = None
    stream: bool = False
    """Whether the data set is endless: its tasks are numbered ranges, and it ends when the job has
    made its steps."""
    epochs: Count = 1
    """Number of passes over the data set. For evaluation: number of evaluations that run without a
    request, with model version 0."""
    shuffle_seed: Annotated[int, Limits(ge=-MOST, le=MOST)] | None = None
    record_order: Annotated[str, Limits(min_length=1, max_length=100)] | None = None
    """Set if an epoch permutes records. Starts and ends of leases are then places in the epoch's
    order, which trainers compute. The text names the method and the files, so that all trainers
    compute the same order."""
    kind: Kind = "training"
    overlap: bool = False
    """Whether an epoch may begin while tasks of the previous one are still leased."""

    def __post_init__(self) -> None:
        """Checks the rules for several fields; the message of a broken rule begins with the wrong field's name.

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
    """How long to wait for tasks if other trainers lease them all."""
    kinds: list[Kind] | None = None
    datasets: list[Name] | None = None
    """If set, only tasks of these data sets are leased, and the state "done" means that these data
    sets are done."""
    call: Positive | None = None
    """Number of the call, greater by one for each new call. A repeated call has the same number, and gets
    the same answer."""


@dataclass(frozen=True)
class HeartbeatRequest(ProcessRequest):
    """A trainer is alive."""

    PATH = "/v1/heartbeat"

    held: list[HeldLease] = field(default_factory=list)


@dataclass(frozen=True)
class HeartbeatsRequest(Call):
    """Several trainers in one pod are alive; each of them gets an answer or an error."""

    PATH = "/v1/heartbeats"

    heartbeats: Annotated[list[HeartbeatRequest], Limits(min_length=1, max_length=256)]


@dataclass(frozen=True)
class LeaveRequest(ProcessRequest):
    """A trainer ends; all its leases are returned."""

    PATH = "/v1/leave"

    back: list[ReturnedLease] = field(default_factory=list)


@dataclass(frozen=True)
class TermRequest(ProcessRequest):
    """The leader of a group begins the next term, because the group continues with other members."""

    PATH = "/v1/terms"

    dataset: Name
    term: Count
    """The newest term in which the leader's model was trained."""


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
    """Text that the member tells the others in this round."""


@dataclass(frozen=True)
class RoundClaim(Message):
    """A round of which the caller is a member."""

    round: RoundNumber
    members: Annotated[list[RoundMember], Limits(min_length=1, max_length=MAX_MEMBERS)]
    """The members by rank."""


@dataclass(frozen=True)
class RendezvousPoll(ProcessRequest):
    """A member of a synchronous job reports its state, and asks for the newest round."""

    PATH = "/v1/rendezvous"

    address: Address
    """The address at which the other members reach the caller."""
    code: Annotated[dict[CodeName, CodeText], Limits(max_length=16)] = field(default_factory=dict)
    """Fingerprints of the program by name, which must be equal for all members."""
    extra: Extra = ""
    """Text that the caller tells all members of the next round, such as a handle of a process
    group; printable ASCII."""
    known: bool = False
    """Whether the caller is a member of the round `seen` and knows its other members. The answer
    then contains only the changes of members since that round. If the master does not know the
    round, the answer asks for the `claim`."""
    seen: RoundNumber = 0
    """The newest round that the caller knows."""
    at: RoundNumber = 0
    """The round that the caller's training has reached; 0 if it has reached none."""
    ready: bool = False
    """Whether the caller can train in the round `at`."""
    broken: bool = False
    """Whether the caller cannot continue in the round `at`, and needs a later one."""
    left: bool = False
    """Whether the caller has left; a master that has just started does not know that."""
    busy: bool = False
    """Whether the caller evaluates, or does something else for which the others must wait."""
    waiting_s: Annotated[float, Limits(ge=0, le=1e9)] = 0.0
    """How long the caller's training has waited for other members; 0 if it is not waiting."""
    probe: Count = 0
    """The newest probe number that the caller received."""
    void: RoundNumber | None = None
    """The newest round that cannot continue, as far as the caller knows. Other members may still
    wait in that round for a member that has given it up and entered a later round. None if the
    caller need not learn of such rounds."""
    claim: RoundClaim | None = None
    """The caller's round, for a master that has just started. If `known` is true, it is sent only
    when an answer asks for it."""
    wait_s: WaitSeconds = 0.0
    """How long to wait for news. A member is dropped if it does not call for this time plus 2 s, or
    for 3 s if that is longer."""


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
    """The exact losses of one trainer when parameter servers roll back: its own lost batches."""

    holder: Name
    """The trainer that lost the batches: its share counts once, however often it is reported."""
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
    """Deletes keys of a round that no member needs any more; ignores keys that are not set."""

    PATH = "/v1/rounds/keys/delete"

    keys: Keys


@dataclass(frozen=True)
class KeyAdd(KeyRequest):
    """Adds to a counter of a round: a key whose value is a decimal number, or 0 if it is not set."""

    PATH = "/v1/rounds/keys/add"

    key: Key
    amount: Annotated[int, Limits(ge=-_MAX_AMOUNT, le=_MAX_AMOUNT)]
    call: Positive
    """Number of the call, greater by one for each new call. A repeated call has the same number, and gets
    the same answer."""


@dataclass(frozen=True)
class KeyGet(KeyRequest):
    """Reads keys of a round, and waits until all of them are set."""

    PATH = "/v1/rounds/keys/get"

    keys: Keys
    wait_s: WaitSeconds = 0.0
    """How long to wait; after this time, the answer contains the keys that are set."""


@dataclass(frozen=True)
class EpochPosition(Message):
    """The trained part of one epoch."""

    number: Count
    cursor: Count
    """Number of places in the epoch's order that were reached."""
    todo: list[Annotated[list[Count], Limits(min_length=2, max_length=2)]]
    """Tasks that were leased and are not done: (number of the task, number of its first records
    that are trained)."""
    ahead: list[Count]
    """Tasks beyond the cursor that were leased: they are done, or in `todo`."""
    dropped: Count


@dataclass(frozen=True)
class LedgerPosition(Message):
    """The trained part of a data set."""

    shape: CodeName
    """Fingerprint of the data set's description."""
    opened: Count
    """Number of epochs that were begun."""
    open: list[EpochPosition]
    """The begun epochs that are not complete."""
    totals: Annotated[list[Count], Limits(min_length=4, max_length=4)]
    """Numbers of done tasks, done records, dropped tasks and dropped records."""
    steps: Count
    """Steps in tasks of this data set; an older master counted the steps of all data sets."""


@dataclass(frozen=True)
class PositionRequest(ProcessRequest):
    """Asks for the position in a data set."""

    PATH = "/v1/position"

    dataset: Name
    tasks: list[TaskId] = field(default_factory=list)
    """The answer names which of these tasks are done or dropped."""


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
    """The position that was saved with the checkpoint; null means the beginning."""
    remaining: dict[TaskId, Count] = field(default_factory=dict)
    """Task -> number of its last records that the model lacks. Lists the tasks of which the model
    contains more records than the position."""
    term: Count | None = None
    """The term that the caller has begun as the leader of a group."""
    generation: Count | None = None
    """Instead of `term`: the generation of parameter servers that the caller is about to start."""
    ticket: Count = 0
    """The caller's ticket to start that generation."""
