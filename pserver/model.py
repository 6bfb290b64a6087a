"""Compares two models of a job: shapes, tables, optimizer and rules. Pure.

The first trainer's model is used. A trainer with another model is refused; the error names the first
difference.
"""

from collections.abc import Mapping
from dataclasses import asdict

from edl_protocol.fields import Json
from edl_protocol.pserver import Model, Piece, Table

from pserver import optimizers
from runtime.call_checks import RefusedError

MAX_DENSE_NUMBERS = 100_000_000
"""Default limit of dense parameters. At this limit, a trainer receives 400 MB with each pull."""


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
        _check_same_fields(f"tables.{name}", asdict(table), asdict(theirs.tables[name]))
    _check_same_fields("rules", asdict(ours.rules), asdict(theirs.rules))


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
