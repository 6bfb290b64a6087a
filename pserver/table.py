"""One server's rows of an embedding table, by id, each with its optimizer slots. Pure.

A row without updates takes no memory: its initial value is computed from seed and id at each lookup. The
row is stored with its first update, or later if the table admits rows later. An evicted row has its initial
value again (decision 0039).
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from edl_protocol.pserver import Table
from numpy.typing import NDArray

from pserver import optimizers
from pserver.errors import FullError
from pserver.hash_slots import GOLDEN, mix
from pserver.memory import Floats, Views
from pserver.optimizers import Optimizer
from pserver.pages import Pages, rows_a_page
from pserver.row_index import RowIndex
from pserver.row_policies import UPDATES, VERSION, Candidates, EvictionWindow

Ids = NDArray[np.int64]
_MANTISSA_BITS = 24
_SPAN = np.float32(1 << _MANTISSA_BITS)
_EVICTED_AT_ONCE = 4096
"""One push evicts at most this many rows, plus twice the number of rows that it updates."""


class TableView(NamedTuple):
    """The rows that an open view holds."""

    size: int
    pages: Sequence[Floats]


class TableSnapshot(NamedTuple):
    """The full contents of a table, for a checkpoint."""

    size: int
    """Number of rows."""
    ids: Sequence[Ids]
    """Pages of ids; all following fields are in pages, too. The last pages may have unused rows at
    their end."""
    values: Sequence[Floats]
    slots: Sequence[Floats]
    marks: Sequence[Ids]
    candidates: Ids | None


class PreparedRows(NamedTuple):
    """Rows of a push that are ready to be written."""

    rows: Ids
    positions: Ids | slice
    """Indices of the push's ids that have these rows."""
    waiting: Ids
    """Ids that are not admitted yet."""
    refused: int
    """Number of ids without a row because the table is full."""


@dataclass(slots=True)
class RowCounts:
    """Counters of changes of rows; checkpoints store them and rollbacks restore them."""

    evicted: int = 0
    waiting: int = 0
    """Gradients that were dropped because their ids were not admitted yet."""
    refused: int = 0
    """Gradients that were dropped because the table was full."""

    def add(self, counts: Mapping[str, int]) -> None:
        """Adds the counters of a checkpoint."""
        self.evicted += int(counts.get("evicted", 0))
        self.waiting += int(counts.get("waiting", 0))
        self.refused += int(counts.get("refused", 0))


class EmbeddingTable:
    """The stored rows of one table and their optimizer slots."""

    def __init__(self, shape: Table, optimizer: Optimizer, views: Views, servers: int = 1) -> None:
        """Creates a table without rows.

        Args:
            shape: The declaration of the table.
            optimizer: The optimizer of the rows.
            views: The open views of the table.
            servers: Number of servers that share the rows.

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
        """Returns rows in the order of the ids, of shape (n, dim).

        Args:
            ids: Any ids, stored or not, of shape (n,).
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
        """Makes rows of distinct ids writable, and creates the admitted ones that are missing.

        Raises:
            FullError: The memory limit is reached; rows that were created have initial values.
        """
        self._index.advance()
        rows, missing = self._find(ids)
        room = len(ids)
        if self._max_rows is not None and self.shape.evict is None:
            room = max(0, self._max_rows - self.size)
        return self._prepared(ids, rows, missing, room)

    def prepare_full(self, ids: Ids) -> PreparedRows:
        """Does the same as `prepare` without more memory: evicts rows, or refuses new ones."""
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
            norm: Norm of the whole gradient at all servers; needed with `clip_norm`.
            version: The version after the push.
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
        """Returns the current rows for a view that was just opened."""
        return TableView(self.size, self._values.arrays)

    def snapshot(self) -> TableSnapshot:
        """Returns the full contents for a view that was just opened."""
        return TableSnapshot(
            self.size,
            self._ids.arrays,
            self._values.arrays,
            [] if self._slots is None else self._slots.arrays,
            [] if self._marks is None else self._marks.arrays,
            None if self._candidates is None else self._candidates.entries(),
        )

    def reserve(self, rows: int) -> None:
        """Grows the index for the rows of a checkpoint.

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
        """Returns up to `most` rows before the row `below`, with their ids.

        The last rows replace rows that are evicted between two calls. So callers read pages from the
        end: a row may occur twice, but none is left out.
        """
        stop = min(below, self.size)
        rows = np.arange(max(0, stop - most), stop, dtype=np.int64)
        return self._ids.read(rows)[:, 0], self._values.read(rows)

    def drop(self) -> None:
        """Frees the memory; open views still hold their arrays."""
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
        """Creates rows for the first `room` admitted ids that are missing, and makes all rows writable."""
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
        """Returns the number of rows that fit without more memory."""
        capacity = min(pages.capacity for pages in self._pages())
        return min(capacity, self._index.room) - self.size

    def _grow(self, ids: Ids) -> Ids:
        """Adds rows with initial values for new ids."""
        size = self.size + len(ids)
        fresh = np.arange(self.size, size, dtype=np.int64)
        for pages in self._pages():  # may fail, so it comes before the index gets the rows
            pages.reserve(size)
            pages.make_writable(fresh)
        rows = self._index.add(ids)
        self._ids.write(rows, ids[:, None])
        self._values.write(rows, self._fresh(ids))
        used_before = self._marks is not None  # an evicted row may have left old values
        if self._slots is not None and (self._optimizer.start or used_before):
            slots = np.full((len(ids), self._slots.width), self._optimizer.start, np.float32)
            if self._optimizer.counted:
                slots[:, -1] = 0
            self._slots.write(rows, slots)
        if self._marks is not None:
            self._marks.write(rows, np.zeros((len(ids), 2), np.int64))
        return rows

    def _sweep(self, window: EvictionWindow, version: int, pushed: int) -> None:
        """Evicts rows that are too old, and some of the rows above the limit."""
        if self.shape.evict_after is not None:
            oldest = version - self.shape.evict_after + 1
            self._evict(window.unused_since(oldest, self.size, pushed))
        if self._max_rows is not None and self.shape.evict is not None:
            most = min(self.size - self._max_rows, _EVICTED_AT_ONCE + 2 * pushed)
            if most > 0:
                none = np.empty(0, np.int64)
                self._evict(window.least(self.shape.evict, most, self.size, none))

    def _evict(self, rows: Ids) -> None:
        """Removes distinct rows; the last rows move into their places."""
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
        return initial_rows(ids, self.shape.dim, self.shape.init, self.shape.seed)


def initial_rows(ids: Ids, dim: int, init: float, seed: int) -> Floats:
    """Returns the initial rows of ids, the same on every server.

    Each number is a hash of seed, id and column, so rows can be computed in any order.

    Args:
        ids: The ids.
        dim: Columns of a row.
        init: The numbers are uniform in [-init, init).
        seed: The table's seed.
    """
    if not init:
        return np.zeros((len(ids), dim), np.float32)
    start = np.array([seed], np.int64).view(np.uint64)
    keys = mix(np.ascontiguousarray(ids).view(np.uint64) ^ mix(start))
    columns = np.arange(dim, dtype=np.uint64) * GOLDEN
    bits = mix(keys[:, None] + columns[None, :]) >> np.uint64(64 - _MANTISSA_BITS)
    unit = bits.astype(np.float32) / _SPAN
    return (unit * np.float32(2) - np.float32(1)) * np.float32(init)
