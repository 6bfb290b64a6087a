"""One server's rows of an embedding table, by id, each with its optimizer slots.

A row without updates takes no memory: its initial value follows from seed and id, so it is computed
at each lookup, and stored from its first update on.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pserver import model, optimizers, row_init
from pserver.memory import Floats, Views
from pserver.optimizers import Optimizer
from pserver.pages import Pages
from pserver.row_index import RowIndex

Ids = NDArray[np.int64]


class TableView(NamedTuple):
    """The rows of a view: their number, and their pages."""

    size: int
    pages: Sequence[Floats]


class TableSnapshot(NamedTuple):
    """The full contents of a table, for a checkpoint."""

    ids: Ids
    values: Sequence[Floats]
    """Pages; the last one may have unused rows at its end."""
    slots: Sequence[Floats]


class EmbeddingTable:
    """The stored rows of one table and their optimizer slots."""

    def __init__(self, shape: model.Table, optimizer: Optimizer, views: Views) -> None:
        self.shape = shape
        self._optimizer = optimizer
        self._index = RowIndex(views.memory)
        self._values = Pages(shape.dim, views)
        width = optimizer.width(shape.dim)
        self._slots = Pages(width, views) if width else None

    @property
    def size(self) -> int:
        """Number of stored rows."""
        return self._index.size

    @property
    def nbytes(self) -> int:
        """Bytes of rows, slots and the index."""
        slots = 0 if self._slots is None else self._slots.nbytes
        return self._values.nbytes + slots + self._index.nbytes

    def lookup(self, ids: Ids, view: TableView | None = None) -> Floats:
        """Rows in the order of the ids.

        Args:
            ids: Any ids, stored or not.
            view: The view to read; the current rows by default.
        """
        rows = self._index.find(ids)
        if view is not None:
            rows[rows >= view.size] = -1
        values = np.empty((len(ids), self.shape.dim), np.float32)
        present = rows >= 0
        if present.any():
            values[present] = self._values.read(rows[present], None if view is None else view.pages)
        if not present.all():
            values[~present] = self._fresh(ids[~present])
        return values

    def prepare(self, ids: Ids) -> Ids:
        """Row numbers of distinct ids, created where missing and ready to be written.

        Raises:
            FullError: The memory limit is reached; created rows have their initial values.
        """
        rows = self._index.find(ids)
        missing = rows < 0
        if missing.any():
            rows[missing] = self._grow(ids[missing])
        self._values.make_writable(rows)
        if self._slots is not None:
            self._slots.make_writable(rows)
        return rows

    def update(self, rows: Ids, gradient: Floats, scale: float) -> None:
        """Applies a gradient to rows returned by `prepare`."""
        values = self._values.read(rows)
        if self._slots is None:
            slots = np.empty((len(rows), 0), np.float32)
        else:
            slots = self._slots.read(rows)
        optimizers.rows(self._optimizer, values, slots, gradient, scale=scale)
        self._values.write(rows, values)
        if self._slots is not None:
            self._slots.write(rows, slots)

    def view(self) -> TableView:
        """The rows for a view that was just opened."""
        return TableView(self.size, self._values.arrays)

    def snapshot(self) -> TableSnapshot:
        """The full contents, for a view that was just opened."""
        slots = [] if self._slots is None else self._slots.arrays
        return TableSnapshot(self._index.ids(), self._values.arrays, slots)

    def restore(self, ids: Ids, values: Floats, slots: Floats) -> None:
        """Adds rows of a checkpoint; ids are distinct and new.

        Raises:
            FullError: The memory limit is reached.
        """
        rows = self._grow(ids)
        self._values.write(rows, values)
        if self._slots is not None:
            self._slots.write(rows, slots)

    def page(self, after: int, most: int) -> tuple[Ids, Floats]:
        """Up to `most` rows after the first `after` ones, with their ids."""
        rows = np.arange(after, min(self.size, after + most), dtype=np.int64)
        return self._index.ids()[rows], self._values.read(rows)

    def drop(self) -> None:
        """Frees its memory; views may still hold its arrays."""
        self._values.drop()
        if self._slots is not None:
            self._slots.drop()
        self._index.drop()

    def _grow(self, ids: Ids) -> Ids:
        """Adds rows with initial values for new ids."""
        size = self.size + len(ids)
        self._values.reserve(size)
        if self._slots is not None:
            self._slots.reserve(size)
        fresh = np.arange(self.size, size, dtype=np.int64)
        self._values.make_writable(
            fresh
        )  # allocate before numbering: a row exists completely or not at all
        if self._slots is not None:
            self._slots.make_writable(fresh)
        rows = self._index.add(ids)
        self._values.write(rows, self._fresh(ids))
        if self._slots is not None and self._optimizer.start:
            slots = np.full((len(ids), self._slots.width), self._optimizer.start, np.float32)
            self._slots.write(rows, slots)
        return rows

    def _fresh(self, ids: Ids) -> Floats:
        return row_init.rows(ids, self.shape.dim, self.shape.init, self.shape.seed)
