"""The calls of a job's parameter servers, version 1: JSON bodies, and headers of frames. Pure.

| call | body | answer |
|---|---|---|
| POST /v1/enter | Enter | JSON: the server's state; the caller's `newest` applied push; `setback` |
| POST /v1/tickets | TicketRequest | JSON: granted |
| POST /v1/settle | frame Settle; `dense` if there is no checkpoint | JSON: state |
| POST /v1/pull | Pull | frame; `dense` if newer |
| POST /v1/lookup | frame Lookup; `ids` | frame; `rows` |
| POST /v1/push | frame Push; `dense`, `ids.N` and `rows.N` for table N | frame; `dense` if wanted |
| POST /v1/refusals | Refusal | JSON |
| PUT, DELETE /v1/pins/{number} | GenerationCall | JSON |
| POST /v1/prepare | Prepare | JSON |
| POST /v1/commit | Commit | JSON |
| POST /v1/position | PositionCall | JSON: the position in the data |
| POST /v1/rows | Page | frame; `ids`, `rows` |
| GET /v1/model, /v1/status | | JSON |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Annotated, Any, Literal

from edl_protocol.fields import MOST, Count, Json, Limits, Message, Text
from edl_protocol.master import ProcessRequest, WaitSeconds

MAX_BYTES = 1 << 30
"""Limit of a request body."""
MAX_TASKS = 1 << 12
"""Maximum number of tasks whose records are in one batch."""
MAX_ROWS = 1 << 20
"""Limit of rows in one answer."""
MAX_PARAMETERS = 20_000
MAX_TABLES = 256
MODEL_PATH = "/v1/model"
STATUS_PATH = "/v1/status"
PIN_PATH = "/v1/pins/{number}"
"""Path of the `GenerationCall`s that set (PUT) and delete (DELETE) a pin."""

ParameterName = Annotated[str, Limits(min_length=1, max_length=300)]
Size = Annotated[int, Limits(ge=0, le=1 << 40)]


@dataclass(frozen=True)
class Table(Message):
    """A sparse parameter: one row per id, created when it is first looked up."""

    dim: Annotated[int, Limits(ge=1, le=1 << 16)]
    """Length of a row."""
    init: Annotated[float, Limits(ge=0, le=1e6)] = 0.01
    """Initial values are uniform between -init and +init."""
    seed: Annotated[int, Limits(ge=-(1 << 63), le=(1 << 63) - 1)] = 0
    """Seed that, with the id, determines the initial row, so that all trainers get the same one."""
    admit_after: Annotated[int, Limits(ge=1, le=1 << 20)] = 1
    """Number of pushes with a new id until it gets a row; earlier gradients of the id are dropped."""
    evict_after: Annotated[int, Limits(ge=1, le=MOST)] | None = None
    """Number of versions without updates after which a row is evicted."""
    max_rows: Annotated[int, Limits(ge=1, le=MOST)] | None = None
    """Maximum number of rows on all servers; beyond it rows are evicted, or new ones refused."""
    evict: Literal["lru", "lfu"] | None = None
    """Rows to evict from a full table: "lru" (least recently updated), "lfu" (least often), or None."""

    @property
    def evicts(self) -> bool:
        """Whether rows may be evicted."""
        return self.evict is not None or self.evict_after is not None

    def fits(self, other: Table) -> bool:
        """Returns whether rows of one table can be used in the other."""
        return (self.dim, self.init, self.seed) == (other.dim, other.init, other.seed)


@dataclass(frozen=True)
class Rules(Message):
    """The servers' rules for stale pushes and for checkpoints."""

    max_staleness: Annotated[int, Limits(ge=0, le=1 << 40)] | None = None
    """A push that is stale by more versions is refused; null accepts all pushes."""
    modulate: bool = False
    """Whether the learning rate is divided by the push's staleness."""
    checkpoint_steps: Annotated[int, Limits(ge=0, le=1 << 40)] = 0
    """Versions from one checkpoint to the next; 0 for no limit in versions."""
    checkpoint_seconds: Annotated[float, Limits(ge=0, le=1e7)] = 0.0
    """Seconds from one checkpoint to the next; 0 for no limit in time."""
    checkpoint_keep: Annotated[int, Limits(ge=1, le=1000)] = 3
    """Checkpoints that are kept."""

    @property
    def saves(self) -> bool:
        """Whether checkpoints are enabled."""
        return bool(self.checkpoint_steps or self.checkpoint_seconds)

    def rate_factor(self, staleness: int) -> float | None:
        """Returns the factor of the learning rate for a push, above 0 and at most 1.

        Args:
            staleness: Number of versions since the push's parameters were pulled.

        Returns:
            None if the push is refused: its worker pulls and computes again.
        """
        if self.max_staleness is not None and staleness > self.max_staleness:
            return None
        return 1.0 / max(1, staleness) if self.modulate else 1.0


@dataclass(frozen=True)
class Model(Message):
    """A model as a trainer declares it."""

    parameters: Annotated[dict[ParameterName, list[Size]], Limits(max_length=MAX_PARAMETERS)]
    tables: Annotated[dict[ParameterName, Table], Limits(max_length=MAX_TABLES)]
    optimizer: dict[str, Any]
    rules: Rules
    code: Annotated[dict[ParameterName, Text], Limits(max_length=16)] = field(default_factory=dict)
    """Fingerprints of the program, by name."""

    def __post_init__(self) -> None:
        """Raises ValueError if there is nothing to train."""
        if not self.parameters and not self.tables:
            raise ValueError("a model needs parameters or tables")

    def size(self, name: str) -> int:
        """Returns the number of elements of a dense parameter."""
        return prod(self.parameters[name])


@dataclass(frozen=True)
class Piece(Message):
    """Elements [start, stop) of a flattened dense parameter."""

    name: ParameterName
    start: Size
    stop: Size

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.stop - self.start


Pieces = Annotated[list[Piece], Limits(max_length=2 * MAX_PARAMETERS)]
"""The pieces of one server, in the order of its vector."""


@dataclass(frozen=True)
class GenerationCall(ProcessRequest):
    """A call made in a generation of the servers; base of most requests."""

    generation: Count
    """Increases whenever the servers restart or roll back to a checkpoint."""


@dataclass(frozen=True)
class ObservedProgress(Message):
    """Server 0's progress according to its last answer to the caller."""

    version: Count
    records: Count


@dataclass(frozen=True)
class Enter(GenerationCall):
    """A trainer joins, or joins again after a change of generation."""

    PATH = "/v1/enter"

    model: Model | None = None
    """The model that the trainer trains; null for a caller that only reads."""
    seen: ObservedProgress | None = None
    """The progress that the trainer observed in its generation."""
    wait_s: WaitSeconds = 0.0
    """How long the answer may wait for the server to be ready."""


@dataclass(frozen=True)
class TicketRequest(GenerationCall):
    """Asks server 0 for the lease to settle or to checkpoint all servers."""

    PATH = "/v1/tickets"

    kind: Literal["settle", "save"]
    back: bool = False
    """Releases the lease instead, because the action could not be done."""


@dataclass(frozen=True)
class CheckpointRef(Message):
    """The name of a checkpoint."""

    generation: Count
    version: Count
    of: Annotated[int, Limits(ge=1, le=4096)]


@dataclass(frozen=True)
class Settle(GenerationCall):
    """Starts a generation from parameters or from a checkpoint."""

    PATH = "/v1/settle"

    ticket: Count
    model: Model
    pieces: Pieces
    checkpoint: CheckpointRef | None
    reason: Text = ""
    seen: ObservedProgress | None = None
    """The progress that the caller observed in the generation that ended."""
    ended: Count = 0
    """The newest generation that the caller trained in; 0 for a new trainer."""
    rewound: bool = False
    """Whether the master has set the data back to the position with which the generation starts."""


@dataclass(frozen=True)
class Pull(GenerationCall):
    """Requests the dense parameters."""

    PATH = "/v1/pull"

    version: Annotated[int, Limits(ge=-1, le=MOST)]
    """The version that the caller has."""
    pin: Count | None = None


@dataclass(frozen=True)
class Lookup(GenerationCall):
    """Requests rows of a table by id."""

    PATH = "/v1/lookup"

    table: Text
    pin: Count | None = None


@dataclass(frozen=True)
class Push(GenerationCall):
    """Pushes the gradients of one batch."""

    PATH = "/v1/push"

    number: Annotated[int, Limits(ge=1, le=MOST)]
    """Increases with each batch of this process; a repeated number is not applied again."""
    version: Count
    """Version of the parameters from which the gradients were computed."""
    records: Count
    tables: Annotated[list[Text], Limits(max_length=256)] = field(default_factory=list)
    norm: Annotated[float, Limits(ge=0)] | None = None
    """Norm of the whole gradient at all servers; needed if the optimizer clips by it."""
    want: bool = False
    """Whether to answer with the updated dense parameters."""
    remaining: Annotated[dict[Text, Count], Limits(max_length=MAX_TASKS)] = field(
        default_factory=dict
    )
    """Task -> number of records at its end that remain after this batch; sent to server 0."""


@dataclass(frozen=True)
class Refusal(GenerationCall):
    """Reports that a worker found NaN or infinity in its gradients and did not push them."""

    PATH = "/v1/refusals"

    number: Count
    parameter: Text


@dataclass(frozen=True)
class CheckpointCall(GenerationCall):
    """A call about a checkpoint that all servers write."""

    version: Count
    """The checkpoint's version, the same for all servers."""


@dataclass(frozen=True)
class Commit(CheckpointCall):
    """Commits a checkpoint that all servers have prepared."""

    PATH = "/v1/commit"


@dataclass(frozen=True)
class Prepare(CheckpointCall):
    """Writes a server's part of a checkpoint."""

    PATH = "/v1/prepare"

    ledger: Json | None = None
    """A position of the master's ledger that the parameters contain completely; sent to server
    0."""
    settled: list[Text] = field(default_factory=list)
    """Pushed tasks that are done at that position."""


@dataclass(frozen=True)
class PositionCall(GenerationCall):
    """Asks server 0 for the position in the data."""

    PATH = "/v1/position"

    checkpoint: CheckpointRef | None = None
    """Asks for the position of this checkpoint; null asks for the position of the current
    parameters."""
    tasks: list[Text] | None = None
    """If set, the answer is about these tasks only."""


@dataclass(frozen=True)
class Page(GenerationCall):
    """Requests one page of all rows of a table."""

    PATH = "/v1/rows"

    table: Text
    after: Count = 0
    """0 in the first call, then `next` of the previous answer; pages begin with the last rows of
    the table."""
    most: Annotated[int, Limits(ge=1, le=MAX_ROWS)] = 1 << 16
