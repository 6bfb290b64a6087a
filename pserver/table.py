"""One server's rows of an embedding table, by id, each with its optimizer slots.

A row without updates takes no memory: its initial value follows from seed and id, so it is computed
at each lookup, and stored from its first update on, or later if the table admits rows later. A row
that is evicted or was never stored has its initial value (decision 0039).
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from edl_protocol.pserver import Table
from numpy.typing import NDArray

from pserver import optimizers, row_init
from pserver.admission import Candidates
from pserver.errors import FullError
from pserver.eviction import UPDATES, VERSION, EvictionWindow
from pserver.memory import Floats, Views
from pserver.optimizers import Optimizer
from pserver.pages import Pages, rows_a_page
from pserver.row_index import RowIndex

Ids = NDArray[np.int64]
_EVICTED_AT_ONCE = 4096
"""Rows beyond its limit that a table evicts in one push, and twice as many as the push has."""


class TableView(NamedTuple):
    """The rows of a view: their number, and their pages."""

    size: int
    pages: Sequence[Floats]


class TableSnapshot(NamedTuple):
    """The full contents of a table, for a checkpoint."""

    size: int
    """Number of rows."""
    ids: Sequence[Ids]
    """Pages; the last ones may have unused rows at their end."""
    values: Sequence[Floats]
    slots: Sequence[Floats]
    marks: Sequence[Ids]
    candidates: Ids | None


class PreparedRows(NamedTuple):
    """Rows of a push that are ready to be written."""

    rows: Ids
    positions: Ids | slice
    """Which of the push's ids have these rows."""
    waiting: Ids
    """Ids that are not admitted yet."""
    refused: int
    """Number of ids for which there is no room."""


@dataclass(slots=True)
class RowCounts:
    """Counts of changes of rows; a rollback restores them, and a checkpoint holds them."""

    evicted: int = 0
    waiting: int = 0
    """Gradients that were dropped because their ids were not admitted yet."""
    refused: int = 0
    """Gradients that were dropped because there was no room for their rows."""

    def add(self, counts: Mapping[str, int]) -> None:
        """Adds what a checkpoint holds."""
        self.evicted += int(counts.get("evicted", 0))
        self.waiting += int(counts.get("waiting", 0))
        self.refused += int(counts.get("refused", 0))


class EmbeddingTable:
    """The stored rows of one table and their optimizer slots."""

    def __init__(self, shape: Table, optimizer: Optimizer, views: Views, servers: int = 1) -> None:
        """Has no rows yet.

        Args:
            shape: The declaration.
            optimizer: The optimizer of its rows.
            views: The views that may be opened of it.
            servers: Number of servers that share its rows.

        Raises:
            FullError: The memory limit is reached.
        """
        self.shape, self.counts = shape, RowCounts()
        self._optimizer, self._views = optimizer, views
        self._max_rows = None if shape.max_rows is None else -(-shape.max_rows // servers)
        self._index = RowIndex(views.memory)
        self._values = Pages(shape.dim, views)
        page_rows = rows_a_page(shape.dim)
        self._ids = Pages(1, views, np.int64, page_rows)
        """The ids in the order of their rows."""
        width = optimizer.width(shape.dim)
        self._slots = Pages(width, views) if width else None
        self._marks = Pages(2, views, np.int64, page_rows) if shape.evicts else None
        self._window = None if self._marks is None else EvictionWindow(self._marks)
        admits_later = shape.admit_after > 1
        self._candidates = Candidates(shape.admit_after, views.memory) if admits_later else None

    @property
    def size(self) -> int:
        """Number of stored rows."""
        return self._index.size

    @property
    def nbytes(self) -> int:
        """Bytes of rows, slots, marks, candidates and the index."""
        candidates = 0 if self._candidates is None else self._candidates.nbytes
        return sum(pages.nbytes for pages in self._pages()) + self._index.nbytes + candidates

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

    def prepare(self, ids: Ids) -> PreparedRows:
        """Rows of distinct ids, created where they are admitted, ready to be written.

        Raises:
            FullError: The memory limit is reached; created rows have their initial values.
        """
        self._index.advance()
        rows, missing = self._find(ids)
        room = len(ids)
        if self._max_rows is not None and self.shape.evict is None:
            room = max(0, self._max_rows - self.size)
        return self._prepared(ids, rows, missing, room)

    def prepare_full(self, ids: Ids) -> PreparedRows:
        """The same within the memory that the table has: evicts rows, or refuses new ones."""
        self._index.finish()
        with contextlib.suppress(FullError):
            return self.prepare(ids)
        rows, missing = self._find(ids)
        new_rows = int(self._admitted(ids[missing]).sum())
        room = self._room()
        if room < new_rows and self.shape.evict is not None and self._window is not None:
            self._evict(
                self._window.least(self.shape.evict, new_rows - room, self.size, rows[~missing])
            )
            rows, missing = self._find(ids)
            room = self._room()
        return self._prepared(ids, rows, missing, room)

    def update(
        self,
        prepared: PreparedRows,
        gradient: Floats,
        scale: float,
        norm: float | None = None,
        version: int = 0,
    ) -> None:
        """Applies a gradient to prepared rows; evicts some rows if no view is open.

        Args:
            prepared: From `prepare` or `prepare_full` of the same push.
            gradient: A row for each id of the push.
            scale: Factor of the learning rate.
            norm: As in `Optimizer.clipped`.
            version: The version that the push leads to.
        """
        rows = prepared.rows
        values = self._values.read(rows)
        if self._slots is None:
            slots = np.empty((len(rows), 0), np.float32)
        else:
            slots = self._slots.read(rows)
        row_gradient = gradient[prepared.positions]
        optimizers.rows(self._optimizer, values, slots, row_gradient, scale=scale, norm=norm)
        self._values.write(rows, values)
        if self._slots is not None:
            self._slots.write(rows, slots)
        if self._marks is not None:
            marks = self._marks.read(rows)
            marks[:, VERSION] = version
            marks[:, UPDATES] += 1
            self._marks.write(rows, marks)
        if self._candidates is not None:
            self._candidates.see(prepared.waiting)
        self.counts.waiting += len(prepared.waiting)
        self.counts.refused += prepared.refused
        if self._window is not None and not self._views.newest:
            self._sweep(self._window, version, len(rows))

    def view(self) -> TableView:
        """The rows for a view that was just opened."""
        return TableView(self.size, self._values.arrays)

    def snapshot(self) -> TableSnapshot:
        """The full contents, for a view that was just opened."""
        return TableSnapshot(
            self.size,
            self._ids.arrays,
            self._values.arrays,
            [] if self._slots is None else self._slots.arrays,
            [] if self._marks is None else self._marks.arrays,
            None if self._candidates is None else self._candidates.entries(),
        )

    def reserve(self, rows: int) -> None:
        """Makes room in the index for the rows of a checkpoint.

        Raises:
            FullError: The memory limit is reached.
        """
        self._index.reserve(rows)

    def restore(
        self, ids: Ids, values: Floats, slots: Floats, marks: Ids | None = None, version: int = 0
    ) -> None:
        """Adds rows of a checkpoint; ids are distinct and new.

        Args:
            ids: The ids.
            values: Their rows.
            slots: Their slots.
            marks: Their marks; None if the checkpoint has none.
            version: The version of the checkpoint.

        Raises:
            FullError: The memory limit is reached.
        """
        rows = self._grow(ids)
        self._values.write(rows, values)
        if self._slots is not None:
            self._slots.write(rows, slots)
        if self._marks is not None:
            self._marks.write(
                rows, np.full((len(ids), 2), (version, 1)) if marks is None else marks
            )

    def restore_candidates(self, entries: Ids) -> None:
        """Adds candidates of a checkpoint; they are dropped if the table admits rows at once."""
        if self._candidates is not None:
            self._candidates.restore(entries)

    def page(self, below: int, most: int) -> tuple[Ids, Floats]:
        """Up to `most` rows before the row `below`, with their ids.

        Rows that are evicted meanwhile are replaced by the last rows, so pages are read from the
        last one on: a row may come twice, and none is left out.
        """
        stop = min(below, self.size)
        rows = np.arange(max(0, stop - most), stop, dtype=np.int64)
        return self._ids.read(rows)[:, 0], self._values.read(rows)

    def drop(self) -> None:
        """Frees its memory; views may still hold its arrays."""
        for pages in self._pages():
            pages.drop()
        self._index.drop()
        if self._candidates is not None:
            self._views.memory.release(self._candidates.nbytes)

    # -- inside ------------------------------------------------------------------------------

    def _find(self, ids: Ids) -> tuple[Ids, NDArray[np.bool_]]:
        rows = self._index.find(ids)
        return rows, rows < 0

    def _admitted(self, ids: Ids) -> NDArray[np.bool_]:
        if self._candidates is None:
            return np.ones(len(ids), bool)
        return self._candidates.admits(ids)

    def _prepared(self, ids: Ids, rows: Ids, missing: NDArray[np.bool_], room: int) -> PreparedRows:
        """Creates rows for the first `room` admitted ids of those that are missing."""
        waiting, refused = np.empty(0, np.int64), 0
        positions: Ids | slice = slice(None)
        if missing.any():
            absent = np.flatnonzero(missing)
            admitted = self._admitted(ids[absent])
            waiting, absent = ids[absent[~admitted]], absent[admitted]
            refused = max(0, len(absent) - room)
            absent = absent[:room]
            rows[absent] = self._grow(ids[absent])
            if refused or len(waiting):
                positions = np.flatnonzero(rows >= 0)
                rows = rows[positions]
        for pages in self._pages():
            if pages is not self._ids:
                pages.make_writable(rows)
        return PreparedRows(rows, positions, waiting, refused)

    def _room(self) -> int:
        """Number of rows that need no more memory."""
        capacity = min(pages.capacity for pages in self._pages())
        return min(capacity, self._index.room) - self.size

    def _grow(self, ids: Ids) -> Ids:
        """Adds rows with initial values for new ids."""
        size = self.size + len(ids)
        fresh = np.arange(self.size, size, dtype=np.int64)
        for pages in self._pages():  # before numbering: a row exists completely or not at all
            pages.reserve(size)
            pages.make_writable(fresh)
        rows = self._index.add(ids)
        self._ids.write(rows, ids[:, None])
        self._values.write(rows, self._fresh(ids))
        used_before = self._marks is not None  # of a row that was evicted
        if self._slots is not None and (self._optimizer.start or used_before):
            slots = np.full((len(ids), self._slots.width), self._optimizer.start, np.float32)
            if self._optimizer.counted:
                slots[:, -1] = 0
            self._slots.write(rows, slots)
        if self._marks is not None:
            self._marks.write(rows, np.zeros((len(ids), 2), np.int64))
        return rows

    def _sweep(self, window: EvictionWindow, version: int, pushed: int) -> None:
        """Evicts rows that are too old, and some of those beyond the limit."""
        if self.shape.evict_after is not None:
            oldest = version - self.shape.evict_after + 1
            self._evict(window.unused_since(oldest, self.size, pushed))
        if self._max_rows is not None and self.shape.evict is not None:
            most = min(self.size - self._max_rows, _EVICTED_AT_ONCE + 2 * pushed)
            if most > 0:
                none = np.empty(0, np.int64)
                self._evict(window.least(self.shape.evict, most, self.size, none))

    def _evict(self, rows: Ids) -> None:
        """Removes distinct rows; the last rows get their numbers."""
        if not len(rows):
            return
        rows = np.sort(rows)
        size = self.size - len(rows)
        holes = rows[rows < size]
        tail = np.setdiff1d(np.arange(size, self.size), rows, assume_unique=True)
        evicted_ids, moved = self._ids.read(rows)[:, 0], self._ids.read(tail)[:, 0]
        for pages in self._pages():
            pages.make_writable(holes)
        for pages in self._pages():
            pages.write(holes, pages.read(tail))
        self._index.remove(evicted_ids, moved)
        for pages in self._pages():
            pages.trim(size)
        self.counts.evicted += len(rows)

    def _pages(self) -> list[Pages]:
        optional = (self._slots, self._marks)
        return [self._values, self._ids, *(pages for pages in optional if pages is not None)]

    def _fresh(self, ids: Ids) -> Floats:
        return row_init.rows(ids, self.shape.dim, self.shape.init, self.shape.seed)
