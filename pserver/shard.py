"""What one server holds of a model, and what pushes do to it. No I/O, no clock, one thread.

A push is applied whole or not at all, and once: `applied` knows the newest number of each process.
"""

from collections import OrderedDict
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pserver import optimizers, staleness
from pserver.errors import BusyError, FullError, NonFiniteError, RefusedError
from pserver.memory import Floats, Memory, Views
from pserver.model import Model, Piece, check_pieces
from pserver.table import Ids, Rows
from pserver.vector import Vector

MOST_PROCESSES = 4096
"""Whose newest push is known; the one that has not pushed for longest is forgotten first."""


class Outcome(StrEnum):
    """What became of a push."""

    APPLIED = "applied"
    REPEATED = "repeated"
    STALE = "stale"


class Push(NamedTuple):
    """Gradients of one batch, as far as they are this server's."""

    process: str
    """The worker's incarnation."""
    number: int
    """Grows with each batch of the process."""
    version: int
    """From which its dense parameters are."""
    records: int
    dense: Floats | None
    """Along the vector; None counts as zeros, and momenta stay as they are."""
    sparse: Mapping[str, tuple[Ids, Floats]]


class Counts(NamedTuple):
    """How far a shard is."""

    version: int
    """Pushes applied."""
    records: int


class Shard:
    """A part of a model; see `pserver.partition` for how one comes from files."""

    def __init__(
        self, model: Model, pieces: list[Piece], dense: Floats, memory: Memory, views: Views
    ) -> None:
        """Begins at version 0.

        Args:
            model: The whole of it.
            pieces: Which numbers this server holds.
            dense: Their values.
            memory: Counts what is used.
            views: That may be opened of it.

        Raises:
            RefusedError: Pieces and values do not fit the model or each other.
            FullError: There is no room.
        """
        size = check_pieces(model, pieces)
        if dense.shape != (size,):
            text = f"dense has {list(dense.shape)} numbers, its pieces have [{size}]"
            raise RefusedError(422, text, "dense")
        self.model, self.pieces = model, pieces
        self.memory, self.views = memory, views
        self.optimizer = optimizers.make(model.optimizer)
        self.counts = Counts(0, 0)
        self.applied: OrderedDict[str, int] = OrderedDict()
        self.vector = Vector(dense, self.optimizer, views)
        self.tables: dict[str, Rows] = {}
        for name, shape in model.tables.items():
            self.tables[name] = Rows(shape, self.optimizer, views)

    @property
    def version(self) -> int:
        """Pushes applied."""
        return self.counts.version

    def push(self, push: Push) -> tuple[Outcome, int]:
        """Applies gradients.

        Returns:
            What became of them, and how stale they were.

        Raises:
            RefusedError: They do not fit; the field is named.
            NonFiniteError: NaN or infinity among them.
            BusyError: A view holds so much that there is no room for copies now.
            FullError: There is no room for rows that they need.
        """
        stale = max(0, self.version - push.version)
        if push.number <= self.applied.get(push.process, 0):
            return Outcome.REPEATED, stale
        scale = staleness.scale(self.model.rules, stale)
        if scale is None:
            return Outcome.STALE, stale
        self._check(push)
        rows = self._prepare(push)
        if push.dense is not None:
            self.vector.update(push.dense, scale)
        for name, (_, gradient) in push.sparse.items():
            self.tables[name].update(rows[name], gradient, scale)
        self.counts = Counts(self.version + 1, self.counts.records + push.records)
        self._remember(push)
        return Outcome.APPLIED, stale

    def table(self, name: str) -> Rows:
        """A table by name.

        Raises:
            RefusedError: There is none.
        """
        found = self.tables.get(name)
        if found is None:
            known = ", ".join(self.tables) or "none"
            text = f"there is no table {name!r:.80}; tables are: {known:.300}"
            raise RefusedError(422, text, "table")
        return found

    def drop(self) -> None:
        """It is not needed any more."""
        self.vector.drop()
        for table in self.tables.values():
            table.drop()

    def _check(self, push: Push) -> None:
        if push.dense is not None:
            if push.dense.shape != self.vector.values.shape:
                sizes = list(push.dense.shape), list(self.vector.values.shape)
                text = f"dense has {sizes[0]} numbers, this server holds {sizes[1]}"
                raise RefusedError(422, text, "dense")
            if not np.isfinite(push.dense).all():
                raise NonFiniteError(self._name_of(push.dense))
        for name, (ids, gradient) in push.sparse.items():
            wanted = (len(ids), self.table(name).shape.dim)
            if gradient.shape != wanted:
                text = f"table {name!r}: rows are {list(gradient.shape)}, should be {list(wanted)}"
                raise RefusedError(422, text, f"sparse.{name}")
            if not _unique(ids):
                text = f"table {name!r}: an id is named twice; add its gradients together first"
                raise RefusedError(422, text, f"sparse.{name}")
            if not np.isfinite(gradient).all():
                raise NonFiniteError(name)

    def _prepare(self, push: Push) -> dict[str, Ids]:
        """Everything that may fail, before anything changes."""
        try:
            rows = {name: self.tables[name].prepare(ids) for name, (ids, _) in push.sparse.items()}
            if push.dense is not None:
                self.vector.free()
        except FullError as error:
            if self.views.newest:
                raise BusyError(f"what is being saved holds memory: {error}") from error
            raise
        return rows

    def _name_of(self, gradient: Floats) -> str:
        """The parameter of the first number that is none."""
        at = int(np.flatnonzero(~np.isfinite(gradient))[0])
        for piece in self.pieces:
            at -= piece.size
            if at < 0:
                return piece.name
        raise AssertionError("pieces are as long as the vector")

    def _remember(self, push: Push) -> None:
        self.applied[push.process] = push.number
        self.applied.move_to_end(push.process)
        while len(self.applied) > MOST_PROCESSES:
            self.applied.popitem(last=False)


def _unique(ids: NDArray[np.int64]) -> bool:
    """Ids mostly come sorted."""
    return bool((ids[1:] > ids[:-1]).all()) or len(np.unique(ids)) == len(ids)


def numbers(model: Model) -> dict[str, Any]:
    """For the status: how large a model is."""
    sizes = [model.size(name) for name in model.parameters]
    return {"parameters": len(sizes), "numbers": sum(sizes), "tables": len(model.tables)}
