"""One table of one server: rows of an embedding by id, each with the slots of the optimizer.

A row that nobody has trained takes no room: how it begins follows from seed and id, so it is made
anew whenever it is looked up, and kept from its first update on.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pserver import model, optimizers, seeding
from pserver.index import Index
from pserver.memory import Floats, Views
from pserver.optimizers import Optimizer
from pserver.pages import Pages

Ids = NDArray[np.int64]


class Seen(NamedTuple):
    """The rows of a view: how many there were, and their pages."""

    size: int
    pages: Sequence[Floats]


class Saved(NamedTuple):
    """All that there is of a table, to be written."""

    ids: Ids
    values: Sequence[Floats]
    """Pages; the last may be longer than there are rows."""
    slots: Sequence[Floats]


class Rows:
    """Of one table."""

    def __init__(self, shape: model.Table, optimizer: Optimizer, views: Views) -> None:
        self.shape = shape
        self._optimizer = optimizer
        self._index = Index(views.memory)
        self._values = Pages(shape.dim, views)
        width = optimizer.width(shape.dim)
        self._slots = Pages(width, views) if width else None

    @property
    def size(self) -> int:
        """Rows that are kept."""
        return self._index.size

    @property
    def nbytes(self) -> int:
        """Of rows, slots and the index."""
        slots = 0 if self._slots is None else self._slots.nbytes
        return self._values.nbytes + slots + self._index.nbytes

    def lookup(self, ids: Ids, seen: Seen | None = None) -> Floats:
        """Rows in the order of the ids.

        Args:
            ids: Any, known or not.
            seen: As a view has them; as they are now by default.
        """
        rows = self._index.find(ids)
        if seen is not None:
            rows[rows >= seen.size] = -1
        found = np.empty((len(ids), self.shape.dim), np.float32)
        known = rows >= 0
        if known.any():
            found[known] = self._values.take(rows[known], None if seen is None else seen.pages)
        if not known.all():
            found[~known] = self._fresh(ids[~known])
        return found

    def prepare(self, ids: Ids) -> Ids:
        """The rows of unique ids, made where they are missing, and ready to be written.

        Raises:
            FullError: There is no room; rows that were made are as they begin.
        """
        rows = self._index.find(ids)
        missing = rows < 0
        if missing.any():
            rows[missing] = self._grow(ids[missing])
        self._values.free(rows)
        if self._slots is not None:
            self._slots.free(rows)
        return rows

    def update(self, rows: Ids, gradient: Floats, scale: float) -> None:
        """One step of these rows; `prepare` gave them."""
        values = self._values.take(rows)
        if self._slots is None:
            slots = np.empty((len(rows), 0), np.float32)
        else:
            slots = self._slots.take(rows)
        optimizers.rows(self._optimizer, values, slots, gradient, scale=scale)
        self._values.put(rows, values)
        if self._slots is not None:
            self._slots.put(rows, slots)

    def seen(self) -> Seen:
        """For a view that was just opened."""
        return Seen(self.size, self._values.arrays)

    def saved(self) -> Saved:
        """For a view that was just opened."""
        slots = [] if self._slots is None else self._slots.arrays
        return Saved(self._index.ids(), self._values.arrays, slots)

    def restore(self, ids: Ids, values: Floats, slots: Floats) -> None:
        """Adds rows as they were saved; ids are unique and new.

        Raises:
            FullError: There is no room.
        """
        rows = self._grow(ids)
        self._values.put(rows, values)
        if self._slots is not None:
            self._slots.put(rows, slots)

    def page(self, after: int, most: int) -> tuple[Ids, Floats]:
        """Up to so many rows behind the first `after`, with their ids."""
        rows = np.arange(after, min(self.size, after + most), dtype=np.int64)
        return self._index.ids()[rows], self._values.take(rows)

    def drop(self) -> None:
        """It is not needed any more."""
        self._values.drop()
        if self._slots is not None:
            self._slots.drop()
        self._index.drop()

    def _grow(self, ids: Ids) -> Ids:
        """Rows for ids it does not know, as they begin."""
        size = self.size + len(ids)
        self._values.reserve(size)
        if self._slots is not None:
            self._slots.reserve(size)
        fresh = np.arange(self.size, size, dtype=np.int64)
        self._values.free(fresh)  # room before a number is given: a row is whole or not there
        if self._slots is not None:
            self._slots.free(fresh)
        rows = self._index.add(ids)
        self._values.put(rows, self._fresh(ids))
        if self._slots is not None and self._optimizer.start:
            slots = np.full((len(ids), self._slots.width), self._optimizer.start, np.float32)
            self._slots.put(rows, slots)
        return rows

    def _fresh(self, ids: Ids) -> Floats:
        return seeding.rows(ids, self.shape.dim, self.shape.init, self.shape.seed)
