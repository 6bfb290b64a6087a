"""The request bodies of protocol version 1: JSON bodies, and headers of frames. Pure.

| call | body | answer |
|---|---|---|
| POST /v1/enter | Enter | JSON: the server's state; the caller's `newest` applied push; `setback` |
| POST /v1/tickets | TicketRequest | JSON: granted |
| POST /v1/settle | frame Settle; `dense` where there is no checkpoint | JSON: state |
| POST /v1/pull | Pull | frame; `dense` if newer |
| POST /v1/lookup | frame Lookup; `ids` | frame; `rows` |
| POST /v1/push | frame Push; `dense`, `ids.N` and `rows.N` for table N | frame; `dense` if wanted |
| POST /v1/refusals | Refusal | JSON |
| PUT, DELETE /v1/pins/{number} | GenerationCall | JSON |
| POST /v1/prepare, /v1/commit | CheckpointCall | JSON |
| POST /v1/position | PositionCall | JSON: the position in the data |
| POST /v1/rows | Page | frame; `ids`, `rows` |
| GET /v1/model, /v1/status | | JSON |
"""

from typing import Annotated, Literal

from edl_protocol.frames import Json
from pydantic import Field, ValidationError

from pserver.model import Model, Part, Pieces
from runtime.call_checks import Body, refusal

MAX_BYTES = 1 << 30
"""Limit of a request body."""
MAX_WAIT_S = 30.0
MAX_TASKS = 1 << 12
"""Limit of tasks that one batch has records of."""
MAX_ROWS = 1 << 20
"""Limit of rows in one answer."""

Id = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$")]
Count = Annotated[int, Field(ge=0, le=1 << 53)]
Text = Annotated[str, Field(max_length=2000)]


class Caller(Part):
    """The trainer process that calls."""

    trainer: Id
    """The trainer's name."""
    incarnation: Id
    """Random id of the trainer's process."""


class GenerationCall(Caller):
    """A call made in a generation of the servers; base of most requests."""

    generation: Count
    """Increases whenever the servers restart or roll back to a checkpoint."""


class ObservedProgress(Part):
    """Server 0's progress according to its last answer to the caller."""

    version: Count
    records: Count


class Enter(GenerationCall):
    """A trainer joins, or joins again after a change of generation."""

    model: Model | None = None
    """The model it trains; null for a caller that only reads."""
    seen: ObservedProgress | None = None
    """The progress it observed in its generation."""
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, strict=False)] = 0.0
    """How long the answer may wait for the server to be ready."""


class TicketRequest(GenerationCall):
    """Asks server 0 for the lease to settle or to checkpoint all servers."""

    kind: Literal["settle", "save"]
    back: bool = False
    """Releases the lease instead, because the action could not be done."""


class CheckpointRef(Part):
    """The name of a checkpoint."""

    generation: Count
    version: Count
    of: Annotated[int, Field(ge=1, le=4096)]


class Settle(GenerationCall):
    """Starts a generation from parameters or from a checkpoint."""

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
    """Whether the master has set the data back to what the generation starts from."""


class Pull(GenerationCall):
    """Requests the dense parameters."""

    version: Annotated[int, Field(ge=-1, le=1 << 53)]
    """The version that the caller has."""
    pin: Count | None = None


class Lookup(GenerationCall):
    """Requests rows of a table by id."""

    table: Text
    pin: Count | None = None


class Push(GenerationCall):
    """Pushes the gradients of one batch."""

    number: Annotated[int, Field(ge=1, le=1 << 53)]
    """Increases with each batch of this process; a repeated number is not applied again."""
    version: Count
    """Version of the parameters from which the gradients were computed."""
    records: Count
    tables: Annotated[list[Text], Field(max_length=256)] = Field(default_factory=list)
    norm: Annotated[float, Field(ge=0, strict=False)] | None = None
    """Norm of the whole gradient at all servers; needed where the optimizer clips by it."""
    want: bool = False
    """Whether to answer with the updated dense parameters."""
    remaining: Annotated[dict[Text, Count], Field(max_length=MAX_TASKS)] = Field(
        default_factory=dict
    )
    """Task -> records of its end that remain after this batch; to server 0."""


class Refusal(GenerationCall):
    """Reports that a worker found NaN or infinity in its gradients and did not push them."""

    number: Count
    parameter: Text


class CheckpointCall(GenerationCall):
    """Prepares or commits a checkpoint."""

    version: Count
    """The checkpoint's version, the same for all servers."""
    ledger: Json | None = None
    """A position of the master's ledger of which the parameters contain all; to server 0."""
    settled: list[Text] = Field(default_factory=list)
    """Pushed tasks that it has as done."""


class PositionCall(GenerationCall):
    """Asks server 0 for the position in the data."""

    checkpoint: CheckpointRef | None = None
    """That of a checkpoint; null for that of the parameters now."""
    tasks: list[Text] | None = None
    """Answers about these tasks only."""


class Page(GenerationCall):
    """Requests one page of all rows of a table."""

    table: Text
    after: Count = 0
    """0, then `next` of the answer before: rows are read from the last one on."""
    most: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 1 << 16


def check_meta(kind: type[Body], meta: Json) -> Body:
    """Validates the header of a frame; raises like `runtime.call_checks.check_body`."""
    try:
        return kind.model_validate(meta)
    except ValidationError as error:
        raise refusal(error) from error
