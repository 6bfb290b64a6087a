"""What a job's trainers say they train: shapes, tables, optimizer, rules; and how two sayings differ.

The first trainer's counts. Another one's is refused by the first thing that differs.
"""

from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pserver import optimizers
from pserver.errors import RefusedError

Json = dict[str, Any]

MOST_PARAMETERS = 20_000
MOST_TABLES = 256
Name = Annotated[str, Field(min_length=1, max_length=300)]
Size = Annotated[int, Field(ge=0, le=1 << 40)]
Text = Annotated[str, Field(max_length=2000)]


class Part(BaseModel):
    """Base of what a model consists of."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Table(Part):
    """A sparse parameter."""

    dim: Annotated[int, Field(ge=1, le=1 << 16)]
    init: Annotated[float, Field(ge=0, le=1e6, strict=False)] = 0.01
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] = 0


class Rules(Part):
    """How servers treat pushes, and when they save."""

    max_staleness: Annotated[int, Field(ge=0, le=1 << 40)] | None = None
    """A push that is older by more versions is refused; null refuses none."""
    modulate: bool = False
    """Whether the learning rate is divided by the push's staleness."""
    checkpoint_steps: Annotated[int, Field(ge=0, le=1 << 40)] = 0
    """Versions from one checkpoint to the next; 0 looks at the time alone."""
    checkpoint_seconds: Annotated[float, Field(ge=0, le=1e7, strict=False)] = 0.0
    """Seconds from one checkpoint to the next; 0 looks at versions alone."""
    checkpoint_keep: Annotated[int, Field(ge=1, le=1000)] = 3


class Model(Part):
    """All of it."""

    code: Annotated[dict[Name, Text], Field(max_length=16)] = Field(default_factory=dict)
    """Fingerprint of the program."""
    parameters: Annotated[dict[Name, list[Size]], Field(max_length=MOST_PARAMETERS)]
    tables: Annotated[dict[Name, Table], Field(max_length=MOST_TABLES)]
    optimizer: dict[str, Any]
    rules: Rules

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.parameters and not self.tables:
            raise ValueError("a model needs parameters or tables")
        return self

    def size(self, name: str) -> int:
        """Numbers in a dense parameter."""
        return prod(self.parameters[name])


class Piece(Part):
    """Numbers [start, stop) of a dense parameter, seen flat."""

    name: Name
    start: Size
    stop: Size

    @property
    def size(self) -> int:
        """How many."""
        return self.stop - self.start


Pieces = Annotated[list[Piece], Field(max_length=2 * MOST_PARAMETERS)]
"""What one server holds, in the order of its vector."""


def check_pieces(model: Model, pieces: list[Piece]) -> int:
    """Numbers in all pieces together.

    Raises:
        RefusedError: A piece is of no parameter, or lies outside of it.
    """
    for piece in pieces:
        if piece.name not in model.parameters:
            raise RefusedError(422, f"pieces: there is no parameter {piece.name!r:.80}", "pieces")
        if not piece.start <= piece.stop <= model.size(piece.name):
            raise RefusedError(
                422,
                f"pieces: {piece.name!r:.80} has {model.size(piece.name)} numbers, not "
                f"[{piece.start}, {piece.stop})",
                "pieces",
            )
    return sum(piece.size for piece in pieces)


def check_same(ours: Model, theirs: Model) -> None:
    """Whether a trainer trains what the servers hold.

    Raises:
        RefusedError: 409; names what differs, and both values.
    """
    _same_code(ours.code, theirs.code)
    check_fits(ours, theirs, "the servers")
    _same("optimizer", _filled(ours.optimizer), _filled(theirs.optimizer), "the servers")
    _same("rules", ours.rules.model_dump(), theirs.rules.model_dump(), "the servers")


def check_fits(ours: Model, theirs: Model, holder: str) -> None:
    """Whether parameters of one can be taken over by the other: names, shapes, tables, kind of slots.

    Args:
        ours: Of the servers, or of a checkpoint.
        theirs: Of a trainer.
        holder: Who has `ours`, for the text.

    Raises:
        RefusedError: 409; names what differs, and both values.
    """
    for name in sorted(ours.parameters.keys() | theirs.parameters.keys()):
        first, second = ours.parameters.get(name), theirs.parameters.get(name)
        if first != second:
            text = (
                f"parameter {name!r} {_has(first)} at {holder} and {_has(second)} in this trainer"
            )
            raise RefusedError(409, text, f"parameters.{name}")
    for name in sorted(ours.tables.keys() | theirs.tables.keys()):
        mine, other = ours.tables.get(name), theirs.tables.get(name)
        if mine != other:
            text = f"table {name!r} {_is(mine)} at {holder} and {_is(other)} in this trainer"
            raise RefusedError(409, text, f"tables.{name}")
    kinds = ours.optimizer.get("kind"), theirs.optimizer.get("kind")
    if kinds[0] != kinds[1]:
        text = f"the optimizer is {kinds[0]!r} at {holder} and {kinds[1]!r} in this trainer"
        raise RefusedError(409, text, "optimizer.kind")


def _same_code(ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            raise RefusedError(
                409,
                f"code.{name} is {ours.get(name)!r:.80} at the servers and "
                f"{theirs.get(name)!r:.80} in this trainer: all trainers of a job must run the "
                "same program; start the job anew to change it",
                f"code.{name}",
            )


def _same(what: str, ours: Json, theirs: Json, holder: str) -> None:
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            raise RefusedError(
                409,
                f"{what}.{name} is {ours.get(name)!r:.60} at {holder} and "
                f"{theirs.get(name)!r:.60} in this trainer: all trainers must ask for the same",
                f"{what}.{name}",
            )


def _filled(spec: Json) -> Json:
    """With its defaults, so that saying them changes nothing."""
    return optimizers.make(spec).model_dump()


def _has(shape: list[int] | None) -> str:
    return "is missing" if shape is None else f"has shape {shape}"


def _is(table: Table | None) -> str:
    if table is None:
        return "is missing"
    return f"has dim {table.dim}, init {table.init:g}, seed {table.seed}"
