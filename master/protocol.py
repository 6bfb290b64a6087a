"""The protocol's bodies, version 1: what calls must look like, and what is said where they do not.

The OpenAPI description is made from these classes, so it cannot differ from what is checked.
"""

from math import isfinite
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from master.bounds import MOST, MOST_ROUNDS
from master.errors import RefusedError

Json = dict[str, Any]

MOST_BYTES = 8 << 20
"""Of a call's body."""
MOST_WAIT_S = 30.0

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$")]
Count = Annotated[int, Field(ge=0, le=MOST)]
Positive = Annotated[int, Field(ge=1, le=MOST)]
Text = Annotated[str, Field(max_length=2000)]
TaskId = Annotated[str, Field(min_length=1, max_length=300)]
Kind = Literal["training", "evaluation", "prediction", "export"]


def _number(value: float | None) -> float | None:
    """JSON has no NaN and no infinity, so the journal could not hold them."""
    return value if value is not None and isfinite(value) else None


Metric = Annotated[Annotated[float, Field(allow_inf_nan=True)] | None, AfterValidator(_number)]
MetricName = Annotated[str, Field(max_length=64)]
MOST_METRICS = 64
"""Of a task."""
MOST_DIGITS = 15
"""Of a number in a path."""
MOST_MEMBERS = 4096
RoundNumber = Annotated[int, Field(ge=0, le=1 << 52)]
Address = Annotated[str, Field(max_length=300, pattern=r"^[^\s\x00-\x1f]+:[0-9]{1,5}$")]
CodeName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
CodeText = Annotated[str, Field(max_length=300)]
Reason = Annotated[str, Field(min_length=1, max_length=2000)]


class _Body(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class _Who(_Body):
    trainer: Name
    """The trainer's name, the same for every process that stands in for it."""
    incarnation: Name
    """Random, of one process."""


class Named(_Body):
    """A name in a path."""

    name: Name


class Ref(_Body):
    """A lease."""

    task: TaskId
    attempt: Count


class Done(Ref):
    """A task whose records were all trained."""

    records: Count = 0
    steps: Count = 0
    metrics: dict[MetricName, Metric] = Field(default_factory=dict, max_length=MOST_METRICS)
    """Means over the task's records; null where one is no number, as a loss may be."""


class Failed(Ref):
    """A task that cannot be trained."""

    error: Text
    record: Count | None = None
    """The record at fault, where one is known."""


class Held(Ref):
    """A lease and how far it is."""

    trained: Count = 0
    """Records trained and not acknowledged."""


class Lead(_Body):
    """Leads a group; refused (409) where the newest model is another's.

    The field is `term` where this model lacks acknowledged records, and `incarnation` where
    another process leads since then.
    """

    dataset: Name
    """What the group trains on."""
    term: Count
    """The newest in which this model was trained; 0 where it was not."""
    begins: bool = True
    """Whether the next term begins; False where a leader that was missed goes on in its own."""


class Join(_Who):
    """A trainer begins, or comes to a new master."""

    done: list[Done] = Field(default_factory=list)
    """Acknowledgements that the master before had answered, beyond `safe`."""
    held: list[Ref] = Field(default_factory=list)
    lead: Lead | None = None
    """Of whoever leads a group that trains one model together."""


class File(_Body):
    """One file of a data set."""

    name: Annotated[str, Field(min_length=1, max_length=1000)]
    records: Count


class Description(_Body):
    """A data set: exactly one of records, files and stream."""

    records: Positive | None = None
    files: Annotated[list[File], Field(min_length=1)] | None = None
    stream: bool = False
    """Endless: tasks are numbered ranges, until the job has had its steps."""
    task_records: Positive
    """Records that are leased together."""
    epochs: Count = 1
    """For evaluation: rounds that run without being asked for, with model version 0."""
    shuffle_seed: Annotated[int, Field(ge=-MOST, le=MOST)] | None = None
    kind: Kind = "training"
    overlap: bool = False
    """Whether an epoch may begin while tasks of the one before are still leased."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [n for n in ("records", "files", "stream") if getattr(self, n)]
        if len(given) != 1:
            raise ValueError("give exactly one of records, files and stream")
        if self.files is not None and not any(file.records for file in self.files):
            raise ValueError("files are all empty: there is nothing to train on")
        if self.epochs < 1 and self.kind != "evaluation":
            raise ValueError("epochs must be at least 1")
        if self.stream and self.epochs != 1:
            raise ValueError("epochs must be 1 for a stream, which never ends")
        if self.kind == "evaluation" and self.epochs > MOST_ROUNDS:
            raise ValueError(f"epochs must be at most {MOST_ROUNDS} for an evaluation")
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
        """What the ledger keeps."""
        given: Json = {"records": self.records, "files": None, "stream": self.stream or None}
        if self.files is not None:
            given["files"] = [file.model_dump() for file in self.files]
        rest = self.model_dump(exclude={"records", "files", "stream"})
        return {name: value for name, value in given.items() if value is not None} | rest


class Work(_Who):
    """Acknowledges and leases in one call."""

    done: list[Done] = Field(default_factory=list)
    failed: list[Failed] = Field(default_factory=list)
    back: list[Held] = Field(default_factory=list)
    """Handed back untrained, or not trained to the end."""
    want: Annotated[int, Field(ge=0, le=4096)] = 0
    wait_s: Annotated[float, Field(ge=0, le=MOST_WAIT_S)] = 0.0
    """How long to wait for tasks, where others hold them all."""
    kinds: list[Kind] | None = None
    datasets: list[Name] | None = None
    """Only tasks of these, and "done" is about these."""
    call: Positive | None = None
    """Grows by one; the same one again gets the same answer."""


class Heartbeat(_Who):
    """A trainer is alive."""

    held: list[Held] = Field(default_factory=list)


class Leave(_Who):
    """A trainer ends; what it holds is handed back."""

    back: list[Held] = Field(default_factory=list)


class Term(_Who):
    """Whoever leads a group begins the next term: with other members, in another round."""

    dataset: Name
    term: Count
    """The newest in which its model was trained."""


class Save(_Who):
    """A trainer would like to save a checkpoint."""

    newest: Count = 0
    """Version of the newest that is there: the ticket's is greater."""


class Saved(_Body):
    """What became of a checkpoint."""

    path: Text
    step: Count = 0
    ok: bool = True


class Evaluate(_Body):
    """Asks for an evaluation."""

    model_version: Count
    dataset: Name


class Seat(_Body):
    """A member of a round."""

    trainer: Name
    incarnation: Name
    address: Address


class Claim(_Body):
    """A round that the caller is in."""

    round: RoundNumber
    members: Annotated[list[Seat], Field(min_length=1, max_length=MOST_MEMBERS)]
    """By rank."""


class Meet(_Who):
    """A member of a synchronous job is there, and asks who trains with it."""

    address: Address
    """Where the other members reach it."""
    code: Annotated[dict[CodeName, CodeText], Field(max_length=16)] = Field(default_factory=dict)
    """What all members must have alike: the program, in short."""
    seen: RoundNumber = 0
    """The newest round it knows of."""
    at: RoundNumber = 0
    """The round that its training has reached; 0 for none."""
    ready: bool = False
    """Whether it can train in that round."""
    broken: bool = False
    """Whether it can do nothing more in that round, and needs a later one."""
    left: bool = False
    """Whether it has left; a master that has just started does not know."""
    busy: bool = False
    """Whether it evaluates, or does something else that others can only wait for."""
    waiting_s: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """How long its training has waited for other members; 0 where it does not."""
    probe: Count = 0
    """The newest number of a probe that it was told."""
    claim: Claim | None = None
    """For a master that has just started."""
    wait_s: Annotated[float, Field(ge=0, le=MOST_WAIT_S)] = 0.0
    """How long to wait for news; who is not heard for 2 s more, and 3 s at least, is dropped."""


class Quit(_Who):
    """A member is in no later round."""


class Fail(_Who):
    """A trainer ends the job."""

    reason: Reason


class Share(_Body):
    """What one trainer of parameter servers knows of its own batches, exactly."""

    holder: Name
    """Whose it is: told twice it counts once."""
    steps: Count = 0
    """Batches that all servers had acknowledged, and that are lost."""
    records: Count = 0
    pending_steps: Count = 0
    """Batches that were on their way: some servers may have had them, and they come again."""
    pending_records: Count = 0


class Setback(_Who):
    """Work was lost together with the model's state."""

    event: Name
    """Names what happened: whoever tells of the same adds to the same setback."""
    reason: Reason
    steps: Count = 0
    """In all, as far as the teller knows; may hold batches that are pending."""
    records: Count = 0
    share: Share | None = None


Body = TypeVar("Body", bound=BaseModel)


def check(kind: type[Body], raw: bytes) -> Body:
    """Reads a body.

    Raises:
        RefusedError: 400 where it is no JSON object, 422 where a field is wrong; names it.
    """
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        raise _refusal(error) from error


_RULED = ("epochs", "records", "files")
"""Fields of which a rule beyond their own may speak; it names first the one that is wrong."""


def _refusal(error: ValidationError) -> RefusedError:
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "json_invalid":
        return RefusedError(400, f"the body is no JSON: {first['msg']}")
    message = first["msg"].removeprefix("Value error, ")
    if not where:
        ruled = [name for name in _RULED if name in message]
        named = min(ruled, key=message.index, default=None)
        return RefusedError(422, f"the body is wrong: {message}", named)
    if first["type"] == "extra_forbidden":
        message = "no such field"
    return RefusedError(422, f"{where}: {message}", where)
