"""The bodies of the protocol, version 1: their fields, and the refusals of bodies that are wrong.

The OpenAPI description is made from these classes, so it cannot differ from what is checked.
"""

from math import isfinite
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from master.bounds import MAX_EVALUATIONS, MOST
from runtime.call_checks import Body, Json, check_body

VERSION = 3
"""Grows when calls get fields that an older master would not know. A caller of a newer version, by
the header `VERSION_HEADER`, may send fields that this master does not know: it ignores them."""
VERSION_HEADER = "EDL-Protocol"
_MAX_VERSION_DIGITS = 6
MAX_BYTES = 8 << 20
"""Bytes of a call's body."""
MAX_WAIT_S = 30.0

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$")]
Count = Annotated[int, Field(ge=0, le=MOST)]
Positive = Annotated[int, Field(ge=1, le=MOST)]
Text = Annotated[str, Field(max_length=2000)]
TaskId = Annotated[str, Field(min_length=1, max_length=300)]
Kind = Literal["training", "evaluation", "prediction", "export"]


def _finite(value: float | None) -> float | None:
    """The value, or None for NaN and infinity: JSON has neither, so the journal cannot hold them."""
    return value if value is not None and isfinite(value) else None


Metric = Annotated[Annotated[float, Field(allow_inf_nan=True)] | None, AfterValidator(_finite)]
MetricName = Annotated[str, Field(max_length=64)]
MAX_METRICS = 512
"""Metrics of a task: a histogram of scores in 200 bins is 400 of them."""
MAX_MEMBERS = 4096
RoundNumber = Annotated[int, Field(ge=0, le=1 << 52)]
Address = Annotated[str, Field(max_length=300, pattern=r"^[^\s\x00-\x1f]+:[0-9]{1,5}$")]
CodeName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
CodeText = Annotated[str, Field(max_length=300)]
Extra = Annotated[str, Field(max_length=1024, pattern=r"^[\x20-\x7e]*$")]
Reason = Annotated[str, Field(min_length=1, max_length=2000)]


class _Body(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class ProcessRequest(_Body):
    """A call of one process of a trainer."""

    trainer: Name
    """The trainer's name, the same for every process that replaces it."""
    incarnation: Name
    """A random name of one process."""


class PathName(_Body):
    """A name in a path."""

    name: Name


class LeaseRef(_Body):
    """A reference to a lease."""

    task: TaskId
    attempt: Count


class DoneTask(LeaseRef):
    """A task whose records were all trained."""

    records: Count = 0
    steps: Count = 0
    metrics: dict[MetricName, Metric] = Field(default_factory=dict, max_length=MAX_METRICS)
    """Means over the task's records; null where a mean is not finite, as a loss may be."""


class FailedTask(LeaseRef):
    """A task that cannot be trained."""

    error: Text
    record: Count | None = None
    """The record at fault, where it is known."""
    transient: bool = False
    """Whether the storage failed, and not the data: the same read may work later."""
    counted: Count = 0
    """Records of its front that were trained, and are counted."""


class HeldLease(LeaseRef):
    """A lease and its progress."""

    trained: Count = 0
    """Records trained and not acknowledged."""


class ReturnedLease(HeldLease):
    """A lease that its trainer gives up."""

    counted: Count = 0
    """The first of these records, which are counted: only the others are leased again."""
    steps: Count = 0
    metrics: dict[MetricName, Metric] = Field(default_factory=dict, max_length=MAX_METRICS)
    """Means over the records that are counted."""


class LeadershipClaim(_Body):
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


class JoinRequest(ProcessRequest):
    """A trainer begins, or connects to a new master."""

    done: list[DoneTask] = Field(default_factory=list)
    """Acknowledgements that the previous master had answered, beyond `safe`."""
    held: list[LeaseRef] = Field(default_factory=list)
    lead: LeadershipClaim | None = None
    """Set by the leader of a group that trains one model together."""


class DatasetFile(_Body):
    """One file of a data set."""

    name: Annotated[str, Field(min_length=1, max_length=1000)]
    records: Count


class DatasetDescription(_Body):
    """A data set: exactly one of records, files and stream."""

    records: Positive | None = None
    files: Annotated[list[DatasetFile], Field(min_length=1)] | None = None
    stream: bool = False
    """Endless: tasks are numbered ranges, until the job has done its steps."""
    task_records: Positive
    """Records that are leased together."""
    epochs: Count = 1
    """For evaluation: rounds that run without a request, with model version 0."""
    shuffle_seed: Annotated[int, Field(ge=-MOST, le=MOST)] | None = None
    record_order: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Set where an epoch permutes records: starts and ends of leases are then places in its order,
    which trainers compute. It names the method and the files, so that all compute the same."""
    kind: Kind = "training"
    overlap: bool = False
    """Whether an epoch may begin while tasks of the previous one are still leased."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = [n for n in ("records", "files", "stream") if getattr(self, n)]
        if len(sources) != 1:
            raise ValueError("give exactly one of records, files and stream")
        if self.files is not None and not any(file.records for file in self.files):
            raise ValueError("files are all empty: there is nothing to train on")
        if self.epochs < 1 and self.kind != "evaluation":
            raise ValueError("epochs must be at least 1")
        if self.stream and self.epochs != 1:
            raise ValueError("epochs must be 1 for a stream, which never ends")
        if self.kind == "evaluation" and self.epochs > MAX_EVALUATIONS:
            raise ValueError(f"epochs must be at most {MAX_EVALUATIONS} for an evaluation")
        return self

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        records = sum(file.records for file in self.files or ()) or self.records or 0
        if records > MOST:
            raise ValueError(f"files add up to {records} records; {MOST} are the most")
        if records * self.epochs > MOST:
            raise ValueError(
                f"epochs are {self.epochs} of {records} records each; {MOST} records in all "
                "epochs together are the most"
            )
        return self

    def shape(self) -> Json:
        """The description as the ledger stores it: the one source, and every other field."""
        sources: Json = {"records": self.records, "files": None, "stream": self.stream or None}
        if self.files is not None:
            sources["files"] = [file.model_dump() for file in self.files]
        fields = self.model_dump(exclude={"records", "files", "stream"})
        return {name: value for name, value in sources.items() if value is not None} | fields


class WorkRequest(ProcessRequest):
    """Acknowledges and leases in one call."""

    done: list[DoneTask] = Field(default_factory=list)
    failed: list[FailedTask] = Field(default_factory=list)
    back: list[ReturnedLease] = Field(default_factory=list)
    """Leases that are returned untrained, or partly trained."""
    want: Annotated[int, Field(ge=0, le=4096)] = 0
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 0.0
    """How long to wait for tasks, where others lease them all."""
    kinds: list[Kind] | None = None
    datasets: list[Name] | None = None
    """Only tasks of these data sets are leased, and the state "done" is about these."""
    call: Positive | None = None
    """Number of the call, one more than before; the same one again gets the same answer."""


class HeartbeatRequest(ProcessRequest):
    """A trainer is alive."""

    held: list[HeldLease] = Field(default_factory=list)


class HeartbeatsRequest(_Body):
    """Several trainers are alive, as processes of one pod; each has an answer or an error."""

    heartbeats: Annotated[list[HeartbeatRequest], Field(min_length=1, max_length=256)]


class LeaveRequest(ProcessRequest):
    """A trainer ends; all its leases are returned."""

    back: list[ReturnedLease] = Field(default_factory=list)


class TermRequest(ProcessRequest):
    """The leader of a group begins the next term: with other members, in another round."""

    dataset: Name
    term: Count
    """The newest term in which its model was trained."""


class CheckpointRequest(ProcessRequest):
    """A trainer asks to save a checkpoint."""

    newest: Count = 0
    """Version of the newest checkpoint that exists: the ticket's version is greater."""


class CheckpointReport(_Body):
    """The result of saving a checkpoint."""

    path: Text
    step: Count = 0
    ok: bool = True


class EvaluationRequest(_Body):
    """Asks for an evaluation."""

    model_version: Count
    dataset: Name


class RoundMember(_Body):
    """A member of a round."""

    trainer: Name
    incarnation: Name
    address: Address
    extra: Extra = ""
    """What it told the others with the round."""


class RoundClaim(_Body):
    """A round of which the caller is a member."""

    round: RoundNumber
    members: Annotated[list[RoundMember], Field(min_length=1, max_length=MAX_MEMBERS)]
    """By rank."""


class RendezvousPoll(ProcessRequest):
    """A member of a synchronous job reports its state, and asks for the newest round."""

    address: Address
    """Where the other members reach it."""
    code: Annotated[dict[CodeName, CodeText], Field(max_length=16)] = Field(default_factory=dict)
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
    waiting_s: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """How long its training has waited for other members; 0 where it does not."""
    probe: Count = 0
    """The newest probe number that it received."""
    void: RoundNumber | None = None
    """The newest round that cannot continue, as far as it knows; others may still wait there for a
    member that has broken it off and entered a later one. None where it need not learn of that."""
    claim: RoundClaim | None = None
    """Its round, for a master that has just started; with `known`, only when it is asked for."""
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 0.0
    """How long to wait for news; a member that does not call for 2 s more, and 3 s at least, is
    dropped."""


class RendezvousLeave(ProcessRequest):
    """Excludes a member from later rounds."""


class JobFailure(ProcessRequest):
    """A trainer ends the job."""

    reason: Reason


class RollbackShare(_Body):
    """The exact losses of one trainer of parameter servers, in its own batches."""

    holder: Name
    """The trainer that lost them: its share counts once, however often it is reported."""
    steps: Count = 0
    """Batches that all servers had acknowledged, and that are lost."""
    records: Count = 0
    pending_steps: Count = 0
    """Batches that were in flight: some servers may have received them, and they are sent again."""
    pending_records: Count = 0


class RollbackReport(ProcessRequest):
    """Work was lost together with the model's state."""

    event: Name
    """Identifies the event: all reports of it add to the same rollback."""
    reason: Reason
    steps: Count = 0
    """Lost steps in total, as far as this trainer knows; may include pending batches."""
    records: Count = 0
    share: RollbackShare | None = None


def check(kind: type[Body], raw: bytes, version: str = "") -> Body:
    """Reads a body; raises like `runtime.call_checks.check_body`.

    Args:
        kind: Its class.
        raw: Its bytes.
        version: The caller's version, as in `VERSION_HEADER`; "" where it sent none.
    """
    is_number = version.isascii() and version.isdecimal() and len(version) <= _MAX_VERSION_DIGITS
    is_newer = is_number and int(version) > VERSION
    return check_body(kind, raw, _RULED, ignores_unknown=is_newer)


_RULED = ("epochs", "records", "files")
"""Fields with rules beyond their own type."""
