"""The protocol's bodies, version 1: JSON bodies, and the headers of frames. Pure.

| call | body | answer |
|---|---|---|
| POST /v1/enter | Enter | JSON: the server's state; `newest` push of the caller that it holds; `setback` |
| POST /v1/tickets | Ask | JSON: granted |
| POST /v1/settle | frame Settle; `dense` where there is no checkpoint | JSON: state |
| POST /v1/pull | Pull | frame; `dense` if newer |
| POST /v1/lookup | frame Lookup; `ids` | frame; `rows` |
| POST /v1/push | frame Push; `dense`, `ids.N` and `rows.N` for table N | frame; `dense` if wanted |
| POST /v1/refusals | Refusal | JSON |
| PUT, DELETE /v1/pins/{number} | Who | JSON |
| POST /v1/prepare, /v1/commit | Save | JSON |
| POST /v1/rows | Page | frame; `ids`, `rows` |
| GET /v1/model, /v1/status | | JSON |
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from pserver.errors import RefusedError
from pserver.model import Model, Part, Pieces

Json = dict[str, Any]

MOST_BYTES = 1 << 30
"""Of a call's body."""
MOST_WAIT_S = 30.0
MOST_ROWS = 1 << 20
"""Of one answer."""

Id = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$")]
Count = Annotated[int, Field(ge=0, le=1 << 53)]
Text = Annotated[str, Field(max_length=2000)]


class Caller(Part):
    """Who calls."""

    trainer: Id
    """The trainer's name."""
    incarnation: Id
    """Random, of one process."""


class Who(Caller):
    """Who calls, and where it thinks the servers are."""

    generation: Count
    """Grows whenever the servers begin anew or go back to a checkpoint."""


class Seen(Part):
    """How far server 0 was, by its last answer."""

    version: Count
    records: Count


class Enter(Who):
    """A trainer comes, or comes back after a change of generation."""

    model: Model | None = None
    """What it trains; null where it only looks."""
    seen: Seen | None = None
    """In its generation."""
    wait_s: Annotated[float, Field(ge=0, le=MOST_WAIT_S, strict=False)] = 0.0
    """How long to wait for the server to be ready."""


class Ask(Who):
    """May I do this for all servers? Asked of server 0."""

    kind: Literal["settle", "save"]
    back: bool = False
    """Gives the ticket back instead: it could not be done."""


class Ref(Part):
    """Names a checkpoint."""

    generation: Count
    version: Count
    of: Annotated[int, Field(ge=1, le=4096)]


class Settle(Who):
    """Begins a generation, with parameters or with a checkpoint."""

    ticket: Count
    model: Model
    pieces: Pieces
    checkpoint: Ref | None
    reason: Text = ""
    seen: Seen | None = None
    """Of the generation that ended, by the caller's last answer."""
    ended: Count = 0
    """The newest generation that the caller trained in; 0 where it is new."""


class Pull(Who):
    """Asks for dense parameters."""

    version: Annotated[int, Field(ge=-1, le=1 << 53)]
    """That the caller has."""
    pin: Count | None = None


class Lookup(Who):
    """Asks for rows of a table."""

    table: Text
    pin: Count | None = None


class Push(Who):
    """Gradients of one batch."""

    number: Annotated[int, Field(ge=1, le=1 << 53)]
    """Grows with each batch of this process; the same again is applied once."""
    version: Count
    """Of the parameters they were computed from."""
    records: Count
    tables: Annotated[list[Text], Field(max_length=256)] = Field(default_factory=list)
    want: bool = False
    """Whether to answer with the dense parameters as they are then."""


class Refusal(Who):
    """A worker found NaN or infinity, and sent nothing of it."""

    number: Count
    parameter: Text


class Save(Who):
    """Prepares or commits a checkpoint."""

    version: Count
    """Its name, the same for all servers."""


class Page(Who):
    """Asks for all rows of a table, some at a time."""

    table: Text
    after: Count = 0
    most: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 1 << 16


Body = TypeVar("Body", bound=BaseModel)


def check(kind: type[Body], raw: bytes) -> Body:
    """Reads a JSON body.

    Raises:
        RefusedError: 400 where it is no JSON, 422 where a field is wrong; names it.
    """
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        raise _refusal(error) from error


def check_meta(kind: type[Body], meta: Json) -> Body:
    """Reads the header of a frame; raises as `check` does."""
    try:
        return kind.model_validate(meta)
    except ValidationError as error:
        raise _refusal(error) from error


def _refusal(error: ValidationError) -> RefusedError:
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "json_invalid":
        return RefusedError(400, f"the body is no JSON: {first['msg']}")
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "no such field"
    if not where:
        return RefusedError(422, f"the body is wrong: {message}")
    return RefusedError(422, f"{where}: {message}", where)
