"""The model that a job trains: shapes, tables, optimizer and rules. Pure.

The first trainer's model is used. A trainer with another model is refused; the error names the first
difference.
"""

from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pserver import optimizers
from runtime.call_checks import Json, RefusedError

MAX_PARAMETERS = 20_000
MAX_TABLES = 256
MAX_DENSE_NUMBERS = 100_000_000
"""Default limit of dense parameters; a trainer receives 400 MB with each pull then."""
Name = Annotated[str, Field(min_length=1, max_length=300)]
Size = Annotated[int, Field(ge=0, le=1 << 40)]
Text = Annotated[str, Field(max_length=2000)]


class Part(BaseModel):
    """Base class of the parts of a model."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Table(Part):
    """A sparse parameter: an embedding table of rows by id."""

    dim: Annotated[int, Field(ge=1, le=1 << 16)]
    init: Annotated[float, Field(ge=0, le=1e6, strict=False)] = 0.01
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] = 0
    admit_after: Annotated[int, Field(ge=1, le=1 << 20)] = 1
    """A new id gets a row at this push that holds it, counted from 1."""
    evict_after: Annotated[int, Field(ge=1, le=1 << 53)] | None = None
    """A row without updates for this many versions is evicted."""
    max_rows: Annotated[int, Field(ge=1, le=1 << 53)] | None = None
    """Limit of rows at all servers; above it rows are evicted, or new ones are refused."""
    evict: Literal["lru", "lfu"] | None = None
    """Which rows are evicted at the limit: least recently or least frequently updated ones."""

    @property
    def evicts(self) -> bool:
        """Whether rows may be evicted."""
        return self.evict is not None or self.evict_after is not None

    def fits(self, other: "Table") -> bool:
        """Returns whether rows of one table can be used in the other."""
        return (self.dim, self.init, self.seed) == (other.dim, other.init, other.seed)


class Rules(Part):
    """The servers' rules for stale pushes and for checkpoints."""

    max_staleness: Annotated[int, Field(ge=0, le=1 << 40)] | None = None
    """A push that is stale by more versions is refused; null accepts all pushes."""
    modulate: bool = False
    """Whether the learning rate is divided by the push's staleness."""
    checkpoint_steps: Annotated[int, Field(ge=0, le=1 << 40)] = 0
    """Versions from one checkpoint to the next; 0 for no limit in versions."""
    checkpoint_seconds: Annotated[float, Field(ge=0, le=1e7, strict=False)] = 0.0
    """Seconds from one checkpoint to the next; 0 for no limit in time."""
    checkpoint_keep: Annotated[int, Field(ge=1, le=1000)] = 3

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


class Model(Part):
    """A model as a trainer declares it."""

    code: Annotated[dict[Name, Text], Field(max_length=16)] = Field(default_factory=dict)
    """Fingerprints of the program, by name."""
    parameters: Annotated[dict[Name, list[Size]], Field(max_length=MAX_PARAMETERS)]
    tables: Annotated[dict[Name, Table], Field(max_length=MAX_TABLES)]
    optimizer: dict[str, Any]
    rules: Rules

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.parameters and not self.tables:
            raise ValueError("a model needs parameters or tables")
        return self

    def size(self, name: str) -> int:
        """Returns the number of elements of a dense parameter."""
        return prod(self.parameters[name])


class Piece(Part):
    """Elements [start, stop) of a flattened dense parameter."""

    name: Name
    start: Size
    stop: Size

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.stop - self.start


Pieces = Annotated[list[Piece], Field(max_length=2 * MAX_PARAMETERS)]
"""The pieces of one server, in the order of its vector."""


def check_pieces(model: Model, pieces: list[Piece]) -> int:
    """Checks the pieces of a server, and returns their number of elements.

    Raises:
        RefusedError: A piece names an unknown parameter, or lies outside of its parameter.
    """
    for piece in pieces:
        if piece.name not in model.parameters:
            raise RefusedError(422, f"pieces: there is no parameter {piece.name!r:.80}", "pieces")
        if not piece.start <= piece.stop <= model.size(piece.name):
            raise RefusedError(
                422,
                f"pieces: {piece.name!r:.80} has {model.size(piece.name)} elements, not "
                f"[{piece.start}, {piece.stop})",
                "pieces",
            )
    return sum(piece.size for piece in pieces)


def check_dense_size(model: Model, most: int) -> None:
    """Checks that a model's dense parameters are few enough to be pulled with each batch.

    Raises:
        RefusedError: 422; names the size, the limit, and what to do.
    """
    numbers = sum(model.size(name) for name in model.parameters)
    if numbers > most:
        text = (
            f"parameters: the model has {numbers} dense numbers, parameter servers take {most}: train "
            "it with --sync, where trainers keep them (--max-dense-numbers raises the limit)"
        )
        raise RefusedError(422, text, "parameters")


def check_same(ours: Model, theirs: Model) -> None:
    """Checks that a trainer has the same model as the servers.

    Raises:
        RefusedError: 409; names the first difference, and both values.
    """
    _same_code(ours.code, theirs.code)
    check_fits(ours, theirs, "the servers")
    # options that are left out equal their defaults
    _check_same_fields(
        "optimizer",
        optimizers.make(ours.optimizer).model_dump(),
        optimizers.make(theirs.optimizer).model_dump(),
    )
    for name, table in ours.tables.items():
        _check_same_fields(f"tables.{name}", table.model_dump(), theirs.tables[name].model_dump())
    _check_same_fields("rules", ours.rules.model_dump(), theirs.rules.model_dump())


def check_fits(ours: Model, theirs: Model, holder: str) -> None:
    """Checks that parameters of one model fit another model: names, shapes, tables, kind of optimizer.

    Args:
        ours: The model of the servers, or of a checkpoint.
        theirs: The model of a trainer.
        holder: Where `ours` comes from, for the message.

    Raises:
        RefusedError: 409; names the first difference, and both values.
    """
    for name in sorted(ours.parameters.keys() | theirs.parameters.keys()):
        first, second = ours.parameters.get(name), theirs.parameters.get(name)
        if first != second:
            text = (
                f"parameter {name!r} {_shape_text(first)} at {holder} "
                f"and {_shape_text(second)} in this trainer"
            )
            raise RefusedError(409, text, f"parameters.{name}")
    for name in sorted(ours.tables.keys() | theirs.tables.keys()):
        our_table, their_table = ours.tables.get(name), theirs.tables.get(name)
        if our_table is None or their_table is None or not our_table.fits(their_table):
            text = (
                f"table {name!r} {_table_text(our_table)} at {holder} "
                f"and {_table_text(their_table)} in this trainer"
            )
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
                "same program; restart the job to change it",
                f"code.{name}",
            )


def _check_same_fields(section: str, ours: Json, theirs: Json) -> None:
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            raise RefusedError(
                409,
                f"{section}.{name} is {ours.get(name)!r:.60} at the servers and "
                f"{theirs.get(name)!r:.60} in this trainer: all trainers must use the same value",
                f"{section}.{name}",
            )


def _shape_text(shape: list[int] | None) -> str:
    return "is missing" if shape is None else f"has shape {shape}"


def _table_text(table: Table | None) -> str:
    if table is None:
        return "is missing"
    return f"has dim {table.dim}, init {table.init:g}, seed {table.seed}"
