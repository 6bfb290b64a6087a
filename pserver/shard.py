"""One server's shard of a model, and the application of pushes. No I/O, no clock, one thread.

A push is applied completely or not at all, and only once: `applied` holds each process's newest
push number.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from edl_protocol.fields import Json
from edl_protocol.pserver import Model, Piece
from numpy.typing import NDArray

from pserver import optimizers
from pserver.errors import BusyError, FullError, NonFiniteError
from pserver.memory import Floats, Memory, Views
from pserver.model import check_pieces
from pserver.table import EmbeddingTable, Ids, PreparedRows
from pserver.vector import Vector
from runtime.call_checks import RefusedError

MAX_TASKS = 1 << 16
"""Maximum number of tasks in `DataPosition.remaining`, which is never renewed if there are no
checkpoints."""
MAX_PROCESSES = 4096
"""Limit of processes in `applied`; the least recent one is removed first."""


class DataPosition:
    """The position in the data that the parameters contain (decision 0032), for checkpoints of server 0.

    Consists of a position of the master's ledger, which the parameters contain completely, and of the
    tasks that were pushed since. Only trainers interpret the position, to set the data back.
    """

    def __init__(self) -> None:
        """Creates the position of parameters that were never trained."""
        self.is_known = True
        """Whether the position is known; trainers of earlier versions do not report it."""
        self.ledger: Json | None = None
        """The position of the master's ledger; None means the beginning."""
        self.remaining: dict[str, int] = {}
        """Task -> number of its last records that were not pushed, for tasks begun after that
        position."""

    def push(self, remaining: Mapping[str, int]) -> None:
        """Records the tasks of an applied push, with the remaining records of each."""
        self.remaining.update(remaining)
        if len(self.remaining) <= MAX_TASKS:
            return
        self.is_known = False
        self.remaining = {task: records for task, records in self.remaining.items() if records}
        while len(self.remaining) > MAX_TASKS:
            del self.remaining[next(iter(self.remaining))]

    def renew(self, ledger: Json, settled: Iterable[str]) -> None:
        """Continues from a later position of the ledger.

        Args:
            ledger: A position from before this call; the parameters contain all of it.
            settled: Tasks that are done at that position.
        """
        self.ledger, self.is_known = ledger, True
        for task in settled:
            self.remaining.pop(task, None)

    def dump(self) -> Json:
        """Returns the position as JSON."""
        return {"known": self.is_known, "ledger": self.ledger, "remaining": dict(self.remaining)}

    def load(self, dumped: Json | None) -> None:
        """Restores the result of `dump`; None in files of earlier versions."""
        if dumped is None:
            self.is_known = False
            return
        self.is_known, self.ledger = bool(dumped["known"]), dumped["ledger"]
        self.remaining = {str(task): int(records) for task, records in dumped["remaining"].items()}


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
    """Version of the dense parameters from which the gradients were computed."""
    records: int
    dense: Floats | None
    """Gradients of the dense parameters, in the vector's order. None means that all are zero;
    momenta then stay unchanged."""
    sparse: Mapping[str, tuple[Ids, Floats]]
    norm: float | None = None
    """Norm of the whole gradient at all servers; needed if the optimizer clips by it."""
    remaining: Mapping[str, int] = MappingProxyType({})
    """Task -> number of its last records that remain after the batch."""


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
        """Creates a shard at version 0.

        Args:
            model: The whole model.
            pieces: The dense elements that this server holds.
            dense: Their values, of shape (number of elements,).
            memory: Accounts for the memory of the shard.
            views: The open views of the shard.
            servers: Number of servers of the job.

        Raises:
            RefusedError: The pieces do not fit the model, or the values do not fit the pieces.
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
        """Gradients that were dropped because the table was full."""
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
        scale = self.model.rules.rate_factor(stale)
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
        self.applied[push.process] = push.number
        self.applied.move_to_end(push.process)
        while len(self.applied) > MAX_PROCESSES:
            self.applied.popitem(last=False)
        self.data.push(push.remaining)
        return PushOutcome.APPLIED, stale

    def table(self, name: str) -> EmbeddingTable:
        """Returns a table by name.

        Raises:
            RefusedError: The table does not exist.
        """
        table = self.tables.get(name)
        if table is None:
            names = ", ".join(self.tables) or "none"
            text = f"there is no table {name!r:.80}; tables are: {names:.300}"
            raise RefusedError(422, text, "table")
        return table

    def drop(self) -> None:
        """Frees the memory; open views still hold their arrays."""
        self.vector.drop()
        for table in self.tables.values():
            table.drop()

    def _check(self, push: PushedGradients) -> None:
        if self.optimizer.clip_norm is not None and push.norm is None:
            text = "norm: the optimizer clips by norm, and this trainer's edl-sdk sends none: update it"
            raise RefusedError(422, text, "norm")
        if push.dense is not None:
            if push.dense.shape != self.vector.values.shape:
                text = (
                    f"dense has {list(push.dense.shape)} numbers, "
                    f"this server holds {list(self.vector.values.shape)}"
                )
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
        """Does everything that can fail, before any value changes."""
        try:
            if push.dense is not None:
                self.vector.make_writable()
            return {name: self._rows(name, ids) for name, (ids, _) in push.sparse.items()}
        except FullError as error:
            raise BusyError(f"open views hold memory: {error}") from error

    def _rows(self, name: str, ids: Ids) -> PreparedRows:
        """Prepares rows of a table; if memory is full, only as many as fit."""
        try:
            return self.tables[name].prepare(ids)
        except FullError:
            if self.views.newest:
                raise
            return self.tables[name].prepare_full(ids)

    def _name_of(self, gradient: Floats) -> str:
        """Returns the parameter with the first NaN or infinity."""
        at = int(np.flatnonzero(~np.isfinite(gradient))[0])
        for piece in self.pieces:
            at -= piece.size
            if at < 0:
                return piece.name
        raise AssertionError("pieces are as long as the vector")


def _unique(ids: NDArray[np.int64]) -> bool:
    """Returns whether all ids differ; sorted ids, the usual case, need no sorting."""
    return bool((ids[1:] > ids[:-1]).all()) or len(np.unique(ids)) == len(ids)


def model_size(model: Model) -> dict[str, Any]:
    """Returns the size of a model for the status."""
    sizes = [model.size(name) for name in model.parameters]
    return {"parameters": len(sizes), "numbers": sum(sizes), "tables": len(model.tables)}
