"""The commands of the ledger, and their form in the journal. Pure.

A line of the journal has the fields of its command, with the same names and in the same order. Lines
outlive the master that wrote them: a field with a default may be added, but no field may be
renamed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from runtime.call_checks import Json


class Acknowledgement(NamedTuple):
    """A task whose records were all trained."""

    task: str
    attempt: int
    records: int | None = None
    steps: int | None = None
    metrics: Mapping[str, float | None] | None = None
    """Means over the task's records; None where a mean is not finite."""


class TaskFailure(NamedTuple):
    """A task that cannot be trained."""

    task: str
    attempt: int
    error: str
    record: int | None = None
    """The record that caused the failure, if known."""
    transient: bool | None = None
    """Whether the storage failed rather than the data, so that the same read may work later. None
    in journal lines of older masters, which leased a failed task again without a pause."""
    counted: int | None = None
    """Number of trained records, from the lease's first record on. They are counted, and not leased
    again."""


class LeaseEntry(NamedTuple):
    """A lease that a trainer has or returns."""

    task: str
    attempt: int
    trained: int | None = None
    """Number of records that were trained but not acknowledged."""
    counted: int | None = None
    """Number of the trained records that are counted, from the first one on. They are not leased
    again."""
    steps: int | None = None
    metrics: Mapping[str, float | None] | None = None
    """Means over the counted records."""


class Lead(NamedTuple):
    """A process claims the lead of a group."""

    dataset: str
    term: int
    """The newest term in which the process's model was trained."""
    begins: bool
    """Whether the next term begins; False to continue in the same term."""


class LostShare(NamedTuple):
    """The loss of one trainer of parameter servers in a rollback."""

    holder: str
    steps: int
    records: int
    pending_steps: int
    pending_records: int


@dataclass(frozen=True, slots=True)
class Join:
    """A trainer begins, or connects to a new master."""

    trained: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    """Task -> number of its records that the trainer's previous process had trained."""
    trainer: str
    incarnation: str
    done: tuple[Acknowledgement, ...] = ()
    held: tuple[LeaseEntry, ...] = ()
    lead: Lead | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """The leader of a group begins the next term, because its group continues with other members."""

    trainer: str
    incarnation: str
    dataset: str
    term: int


@dataclass(frozen=True, slots=True)
class Describe:
    """A trainer describes a data set."""

    name: str
    shape: Json


@dataclass(frozen=True, slots=True)
class Work:
    """A trainer reports on its tasks and requests more; fields that the call leaves out are None."""

    trainer: str
    incarnation: str
    done: tuple[Acknowledgement, ...] | None = None
    failed: tuple[TaskFailure, ...] | None = None
    back: tuple[LeaseEntry, ...] | None = None
    want: int | None = None
    kinds: Sequence[str] | None = None
    datasets: Sequence[str] | None = None
    call: int | None = None


@dataclass(frozen=True, slots=True)
class More:
    """Leases tasks for a work call that has waited; fields that the call leaves out are None."""

    trainer: str
    incarnation: str
    want: int | None = None
    kinds: Sequence[str] | None = None
    datasets: Sequence[str] | None = None
    call: int | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """A trainer ends."""

    trained: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    trainer: str
    incarnation: str
    back: tuple[LeaseEntry, ...] | None = None
    """Returned leases with counted records."""


@dataclass(frozen=True, slots=True)
class Expire:
    """Liveness ends the leases of trainers; the fields map trainer -> task -> number of trained records."""

    trainers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Dead trainers, which are removed."""
    stuck: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Trainers that make no progress; they are not removed."""


@dataclass(frozen=True, slots=True)
class ExpireLeaked:
    """Liveness ends leases that their trainers do not report: trainer -> tasks."""

    leaked: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Retry:
    """Pauses of failed tasks are over."""

    ready: Sequence[str]
    """Tasks that may be leased again, but not to the trainer that failed to train them."""
    anyone: Sequence[str]
    """Tasks that no other trainer took: the trainer that failed to train them may lease them
    again."""


@dataclass(frozen=True, slots=True)
class EndOutage:
    """Ends an outage that has lasted too long: drops the failing tasks, or fails the job."""

    dataset: str
    lasted_s: int


@dataclass(frozen=True, slots=True)
class EndTicket:
    """Ends the ticket of a trainer that has not written its checkpoint for too long."""

    ticket: str


@dataclass(frozen=True, slots=True)
class EndSettling:
    """Removes the trainers that did not join the new master in time."""


@dataclass(frozen=True, slots=True)
class Save:
    """A trainer asks to write a checkpoint."""

    trainer: str
    incarnation: str
    newest: int = 0
    """The newest version that the trainer knows."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A trainer reports whether it wrote a checkpoint."""

    ticket: str
    path: str
    step: int
    ok: bool


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Queues an evaluation of a model version."""

    model_version: int
    dataset: str


@dataclass(frozen=True, slots=True)
class Fail:
    """A trainer fails the job, because it cannot succeed."""

    trainer: str
    incarnation: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rollback:
    """A trainer reports work that was lost together with the model's state."""

    trainer: str
    incarnation: str
    event: str
    reason: str
    steps: int
    """All lost steps that the trainer knows of."""
    records: int
    share: LostShare | None = None


@dataclass(frozen=True, slots=True)
class Rewind:
    """A model is restored: the data set is set back to the records that the model contains."""

    trainer: str
    incarnation: str
    dataset: str
    event: str
    reason: str
    version: int
    """The version of the model, as evaluations name it."""
    position: Json | None
    """A result of `master.rewinds.position`; None means the beginning."""
    remaining: Mapping[str, int] = field(default_factory=dict)
    """Task -> number of its last records that the model lacks. Lists the tasks of which the model
    contains more records than the position."""
    term: int | None = None
    """The term that the leader of a group has begun; None for parameter servers."""
    generation: int | None = None
    """The generation that parameter servers are about to start; None for a group."""
    ticket: int = 0
    """The ticket of the trainer that may start that generation."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """This master resumes from the snapshot of another one."""


Command = (
    Join
    | Term
    | Describe
    | Work
    | More
    | Leave
    | Expire
    | ExpireLeaked
    | EndSettling
    | Retry
    | EndOutage
    | EndTicket
    | Save
    | Saved
    | Evaluate
    | Fail
    | Rollback
    | Rewind
    | TakeOver
)
_Part = Acknowledgement | TaskFailure | LeaseEntry | Lead | LostShare

_KINDS: dict[str, type[Command]] = {
    "join": Join,
    "term": Term,
    "describe": Describe,
    "work": Work,
    "more": More,
    "leave": Leave,
    "expire": Expire,
    "settle": EndSettling,
    "retry": Retry,
    "outage": EndOutage,
    "ticket": EndTicket,
    "save": Save,
    "saved": Saved,
    "evaluate": Evaluate,
    "fail": Fail,
    "setback": Rollback,
    "rewind": Rewind,
    "takeover": TakeOver,
}
_HEADS: dict[type[Command], Json] = {
    **{kind: {"do": name} for name, kind in _KINDS.items()},
    ExpireLeaked: {"do": "expire"},
    More: {"do": "more", "results": []},
}
"""The first fields of a command's line."""
_PARTS: dict[str, type[_Part]] = {
    "done": Acknowledgement,
    "failed": TaskFailure,
    "back": LeaseEntry,
    "held": LeaseEntry,
    "lead": Lead,
    "share": LostShare,
}
"""The fields that hold objects, or lists of objects."""
_NAMES = {kind: tuple(column.name for column in fields(kind)) for kind in _HEADS}
_SINGLE = (Lead, LostShare)
"""Parts that a field holds directly; all other parts are in tuples."""
_SPARSE = (Work, More, Leave)
"""Commands whose lines leave out fields that are None; lines of other commands have null there."""


def to_json(command: Command) -> Json:
    """Returns a command as a line of the journal."""
    kind = type(command)
    line, sparse = {**_HEADS[kind]}, kind in _SPARSE
    for name in _NAMES[kind]:
        value = getattr(command, name)
        if type(value) is tuple:
            line[name] = [_object(part) for part in value]
        elif type(value) in _SINGLE:
            line[name] = _object(value)
        elif value is not None or not sparse:
            line[name] = value
    return line


def from_json(line: Json) -> Command:
    """Returns the command of a line, written by this master or an older one.

    Unknown fields are ignored.

    Raises:
        LookupError: The command is unknown.
        TypeError: A field is missing.
    """
    kind = ExpireLeaked if "leaked" in line else _KINDS[line["do"]]
    arguments = _known_fields(_NAMES[kind], line)
    for name, part in _PARTS.items():
        value = arguments.get(name)
        if isinstance(value, list):
            parts = [part(**_known_fields(part._fields, entry)) for entry in value]
            arguments[name] = tuple(parts)
        elif value is not None:
            arguments[name] = part(**_known_fields(part._fields, value))
    return kind(**arguments)


def _object(part: _Part) -> Json:
    """Returns a part as JSON, without fields that are None."""
    if type(part) is Acknowledgement:
        # does the same as the code below in half the time: every trained task has an
        # acknowledgement
        line: Json = {"task": part.task, "attempt": part.attempt}
        if part.records is not None:
            line["records"] = part.records
        if part.steps is not None:
            line["steps"] = part.steps
        if part.metrics is not None:
            line["metrics"] = part.metrics
        return line
    pairs = zip(part._fields, part, strict=True)
    return {name: value for name, value in pairs if value is not None}


def _known_fields(names: tuple[str, ...], line: Json) -> Json:
    """Returns those of the named fields that a line has."""
    return {name: line[name] for name in names if name in line}
