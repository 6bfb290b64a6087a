"""Which rows a table stores: new ids are admitted after some pushes, and old rows are evicted. Pure."""

import numpy as np
from numpy.typing import NDArray

from pserver.hash_slots import Ids, hash_ids
from pserver.memory import Memory
from pserver.pages import Pages

_PLACES = 1 << 18
_BYTES_A_PLACE = 16
LRU, LFU = "lru", "lfu"
VERSION, UPDATES = 0, 1
"""Columns of marks: version of a row's newest update, and number of its updates."""
_MIN_ROWS = 4096
_ROWS_AN_EVICTION = 8


class Candidates:
    """The ids of one table without a row, and how many pushes have contained each id.

    Candidates are counted exactly, in a fixed number of places that their hashes select. A candidate
    loses its place to a later one whose hash selects the same place. So ids that occur once cost no
    memory. To get a row, an id must occur often enough before some hundred thousand other ids can
    replace it (decision 0039).
    """

    def __init__(self, admit_after: int, memory: Memory) -> None:
        """Starts without candidates.

        Args:
            admit_after: Number of pushes that contain an id until it gets a row; the last one
                creates the row.
            memory: Accounts for the memory of the candidates.

        Raises:
            FullError: The memory limit is reached.
        """
        memory.reserve(_PLACES * _BYTES_A_PLACE)
        self._admit_after = admit_after
        self._ids = np.zeros(_PLACES, np.int64)
        self._pushes = np.zeros(_PLACES, np.int64)
        self.nbytes = _PLACES * _BYTES_A_PLACE

    def admits(self, ids: Ids) -> NDArray[np.bool_]:
        """Returns for each id whether it gets a row if the current push contains it."""
        return self._counts(ids) + 1 >= self._admit_after

    def see(self, ids: Ids) -> None:
        """Counts a push of distinct ids that were not admitted."""
        counts, places = self._counts(ids), _places(ids)
        self._ids[places], self._pushes[places] = ids, counts + 1

    def entries(self) -> Ids:
        """Returns all candidates for a checkpoint: rows of (id, number of pushes)."""
        occupied = np.flatnonzero(self._pushes)
        return np.stack([self._ids[occupied], self._pushes[occupied]], axis=1)

    def restore(self, entries: Ids) -> None:
        """Adds the candidates of a checkpoint."""
        places = _places(entries[:, 0])
        self._ids[places], self._pushes[places] = entries[:, 0], entries[:, 1]

    def _counts(self, ids: Ids) -> Ids:
        places = _places(ids)
        return np.where(self._ids[places] == ids, self._pushes[places], 0)


def _places(ids: Ids) -> Ids:
    return (hash_ids(ids) & np.uint64(_PLACES - 1)).view(np.int64)


class EvictionWindow:
    """Chooses the rows to evict: the oldest or rarest of a window that moves over all rows.

    A window costs the same for any number of rows, so no push waits for an eviction. The chosen
    rows are nearly those that a search through all rows would choose.
    """

    def __init__(self, marks: Pages) -> None:
        self._marks = marks
        self._next = 0

    def unused_since(self, version: int, size: int, rows: int) -> Ids:
        """Returns rows of the next window whose newest update is older than a version.

        Args:
            version: The version.
            size: Number of rows of the table.
            rows: Number of rows in the push; the window is larger.
        """
        window = self._window(size, _MIN_ROWS + 2 * rows)
        return window[self._marks.read(window)[:, VERSION] < version]

    def least(self, kind: str, count: int, size: int, excluded: Ids) -> Ids:
        """Returns the rows of the next window that were updated longest ago, or least often.

        Args:
            kind: `LRU` or `LFU`. With `LFU`, the update counts of the window are halved, so that
                old updates count less.
            count: Number of rows to choose; the result may have fewer.
            size: Number of rows of the table.
            excluded: Rows that must not be chosen.
        """
        window = self._window(size, _MIN_ROWS + _ROWS_AN_EVICTION * count)
        window = window[~np.isin(window, excluded)]
        marks = self._marks.read(window)
        order = (
            np.argsort(marks[:, VERSION], kind="stable")
            if kind == LRU
            else np.lexsort((marks[:, VERSION], marks[:, UPDATES]))
        )
        if kind == LFU:
            marks[:, UPDATES] = (marks[:, UPDATES] + 1) // 2
            self._marks.make_writable(window)
            self._marks.write(window, marks)
        return window[order[:count]]

    def _window(self, size: int, rows: int) -> Ids:
        count = min(size, rows)
        start = self._next if self._next < size else 0
        self._next = start + count
        return (start + np.arange(count)) % max(1, size)
