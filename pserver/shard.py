"""One server's shard of a model, and the application of pushes. No I/O, no clock, one thread.

A push is applied completely or not at all, and once: `applied` holds each process's newest number.
"""

from collections import OrderedDict
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from edl_protocol.pserver import Model, Piece
from numpy.typing import NDArray

from pserver import optimizers, staleness
from pserver.data_position import DataPosition
from pserver.errors import BusyError, FullError, NonFiniteError
from pserver.memory import Floats, Memory, Views
from pserver.model import check_pieces
from pserver.table import EmbeddingTable, Ids, PreparedRows
from pserver.vector import Vector
from runtime.call_checks import RefusedError

MAX_PROCESSES = 4096
"""Limit of processes in `applied`; the least recent one is removed first."""


class PushOutcome(StrEnum):
    """The outcome of a push."""

    APPLIED = "applied"
    REPEATED = "repeated"
    STALE = "stale"


class PushedGradients(NamedTuple):
    """The gradients of one batch for one server."""

    process: str
    """The worker's incarnation."""
    number: int
    """Increases with each batch of the process."""
    version: int
    """Version of the dense parameters that were used."""
    records: int
    dense: Floats | None
    """In the order of the vector; None counts as zeros, and momenta do not change."""
    sparse: Mapping[str, tuple[Ids, Floats]]
    norm: float | None = None
    """Of the whole gradient at all servers; needed where the optimizer clips by it."""
    remaining: Mapping[str, int] = MappingProxyType({})
    """Task -> records of its end that remain after the batch."""


class ShardCounts(NamedTuple):
    """A shard's progress."""

    version: int
    """Number of applied pushes."""
    records: int


class Shard:
    """One server's part of a model; `pserver.shard_codec` restores one from files."""

    def __init__(
        self,
        model: Model,
        pieces: list[Piece],
        dense: Floats,
        memory: Memory,
        views: Views,
        *,
        servers: int = 1,
    ) -> None:
        """Begins at version 0.

        Args:
            model: The whole of it.
            pieces: Which numbers this server holds.
            dense: Their values.
            memory: Counts what is used.
            views: That may be opened of it.
            servers: Number of servers of the job.

        Raises:
            RefusedError: Pieces and values do not fit the model or each other.
            FullError: The memory limit would be exceeded.
        """
        size = check_pieces(model, pieces)
        if dense.shape != (size,):
            text = f"dense has {list(dense.shape)} numbers, its pieces have [{size}]"
            raise RefusedError(422, text, "dense")
        self.model, self.pieces = model, pieces
        self.memory, self.views = memory, views
        self.optimizer = optimizers.make(model.optimizer)
        self.counts = ShardCounts(0, 0)
        self.applied: OrderedDict[str, int] = OrderedDict()
        self.data = DataPosition()
        self.vector = Vector(dense, self.optimizer, views)
        self.tables: dict[str, EmbeddingTable] = {}
        for name, shape in model.tables.items():
            self.tables[name] = EmbeddingTable(shape, self.optimizer, views, servers)

    @property
    def version(self) -> int:
        """Number of applied pushes."""
        return self.counts.version

    @property
    def refused_rows(self) -> int:
        """Gradients of rows that were dropped because there was no room for the rows."""
        return sum(table.counts.refused for table in self.tables.values())

    def push(self, push: PushedGradients) -> tuple[PushOutcome, int]:
        """Applies gradients.

        Returns:
            The outcome, and the staleness in versions.

        Raises:
            RefusedError: The gradients do not fit the shard; the error names the field.
            NonFiniteError: A gradient contains NaN or infinity.
            BusyError: Open views leave too little memory now.
        """
        stale = max(0, self.version - push.version)
        if push.number <= self.applied.get(push.process, 0):
            return PushOutcome.REPEATED, stale
        scale = staleness.scale(self.model.rules, stale)
        if scale is None:
            return PushOutcome.STALE, stale
        self._check(push)
        rows = self._prepare(push)
        scale *= self.optimizer.rate_factor(self.version)
        if push.dense is not None:
            self.vector.update(push.dense, scale, push.norm)
        for name, (_, gradient) in push.sparse.items():
            version = self.version + 1
            self.tables[name].update(rows[name], gradient, scale, push.norm, version)
        self.counts = ShardCounts(self.version + 1, self.counts.records + push.records)
        self._remember(push)
        self.data.push(push.remaining)
        return PushOutcome.APPLIED, stale

    def table(self, name: str) -> EmbeddingTable:
        """A table by name.

        Raises:
            RefusedError: There is no such table.
        """
        table = self.tables.get(name)
        if table is None:
            names = ", ".join(self.tables) or "none"
            text = f"there is no table {name!r:.80}; tables are: {names:.300}"
            raise RefusedError(422, text, "table")
        return table

    def drop(self) -> None:
        """Frees its memory; views may still hold its arrays."""
        self.vector.drop()
        for table in self.tables.values():
            table.drop()

    def _check(self, push: PushedGradients) -> None:
        if self.optimizer.clip_norm is not None and push.norm is None:
            text = "norm: the optimizer clips by norm, and this trainer's edl-sdk sends none: update it"
            raise RefusedError(422, text, "norm")
        if push.dense is not None:
            if push.dense.shape != self.vector.values.shape:
                sizes = list(push.dense.shape), list(self.vector.values.shape)
                text = f"dense has {sizes[0]} numbers, this server holds {sizes[1]}"
                raise RefusedError(422, text, "dense")
            if not np.isfinite(push.dense).all():
                raise NonFiniteError(self._name_of(push.dense))
        for name, (ids, gradient) in push.sparse.items():
            expected_shape = (len(ids), self.table(name).shape.dim)
            if gradient.shape != expected_shape:
                text = (
                    f"table {name!r}: rows are {list(gradient.shape)}, "
                    f"should be {list(expected_shape)}"
                )
                raise RefusedError(422, text, f"sparse.{name}")
            if not _unique(ids):
                text = f"table {name!r}: an id occurs twice; add up its gradients first"
                raise RefusedError(422, text, f"sparse.{name}")
            if not np.isfinite(gradient).all():
                raise NonFiniteError(name)

    def _prepare(self, push: PushedGradients) -> dict[str, PreparedRows]:
        """Does everything that may fail, before anything changes."""
        try:
            if push.dense is not None:
                self.vector.make_writable()
            return {name: self._rows(name, ids) for name, (ids, _) in push.sparse.items()}
        except FullError as error:
            raise BusyError(f"open views hold memory: {error}") from error

    def _rows(self, name: str, ids: Ids) -> PreparedRows:
        """Rows of a table; without memory for more, those for which there is room."""
        try:
            return self.tables[name].prepare(ids)
        except FullError:
            if self.views.newest:
                raise
            return self.tables[name].prepare_full(ids)

    def _name_of(self, gradient: Floats) -> str:
        """The parameter of the first NaN or infinity."""
        at = int(np.flatnonzero(~np.isfinite(gradient))[0])
        for piece in self.pieces:
            at -= piece.size
            if at < 0:
                return piece.name
        raise AssertionError("pieces are as long as the vector")

    def _remember(self, push: PushedGradients) -> None:
        self.applied[push.process] = push.number
        self.applied.move_to_end(push.process)
        while len(self.applied) > MAX_PROCESSES:
            self.applied.popitem(last=False)


def _unique(ids: NDArray[np.int64]) -> bool:
    """Whether all ids differ; sorted ids, the usual case, are checked without sorting."""
    return bool((ids[1:] > ids[:-1]).all()) or len(np.unique(ids)) == len(ids)


def model_size(model: Model) -> dict[str, Any]:
    """The size of a model, for the status."""
    sizes = [model.size(name) for name in model.parameters]
    return {"parameters": len(sizes), "numbers": sum(sizes), "tables": len(model.tables)}
