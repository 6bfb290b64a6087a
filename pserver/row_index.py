"""A hash table from ids to row numbers, in two arrays, with vectorised lookups.

Open addressing with linear probing; at most half full. Rows are never removed, so row numbers are
stable. A Python dict takes five times as many bytes per row.
"""

import numpy as np
from numpy.typing import NDArray

from pserver.memory import Memory
from pserver.row_init import mix

Ids = NDArray[np.int64]

_LEAST = 64
_BYTES_A_PLACE = 16


class RowIndex:
    """A hash table that numbers rows from 0 in the order in which their ids are added."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.size = 0
        memory.reserve(_LEAST * _BYTES_A_PLACE)
        self._ids, self._rows = _empty(_LEAST)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return len(self._ids) * _BYTES_A_PLACE

    def find(self, ids: Ids) -> Ids:
        """The row of each id; -1 for unknown ids."""
        rows = np.full(len(ids), -1, np.int64)
        mask = len(self._ids) - 1
        pending = np.arange(len(ids))
        places = _places(ids, mask)
        while len(pending):
            candidates = self._rows[places]
            same = self._ids[places] == ids[pending]
            hit = same & (candidates >= 0)
            rows[pending[hit]] = candidates[hit]
            on = ~hit & (candidates >= 0)
            pending, places = pending[on], (places[on] + 1) & mask
        return rows

    def add(self, ids: Ids) -> Ids:
        """Adds distinct new ids; returns their rows.

        Raises:
            FullError: The memory limit is reached; nothing has changed.
        """
        self._reserve(self.size + len(ids))
        rows = np.arange(self.size, self.size + len(ids), dtype=np.int64)
        self._insert(ids, rows)
        self.size += len(ids)
        return rows

    def ids(self) -> Ids:
        """All ids, in the order of their rows."""
        occupied = self._rows >= 0
        ids = np.empty(self.size, np.int64)
        ids[self._rows[occupied]] = self._ids[occupied]
        return ids

    def drop(self) -> None:
        """Gives its bytes back to the account."""
        self._memory.release(self.nbytes)

    def _reserve(self, size: int) -> None:
        capacity = len(self._ids)
        while capacity < 2 * size:
            capacity *= 2
        if capacity == len(self._ids):
            return
        self._memory.reserve(capacity * _BYTES_A_PLACE)
        before = self.nbytes
        ids = self.ids()
        self._ids, self._rows = _empty(capacity)
        self._insert(ids, np.arange(len(ids), dtype=np.int64))
        self._memory.release(before)

    def _insert(self, ids: Ids, rows: Ids) -> None:
        mask = len(self._ids) - 1
        pending = np.arange(len(ids))
        places = _places(ids, mask)
        while len(pending):
            free = np.flatnonzero(self._rows[places] < 0)
            _, first = np.unique(places[free], return_index=True)
            winners = free[first]  # of several ids that probe one place, the first gets it
            self._ids[places[winners]] = ids[pending[winners]]
            self._rows[places[winners]] = rows[pending[winners]]
            on = np.ones(len(pending), bool)
            on[winners] = False
            pending, places = pending[on], places[on]
            occupied = self._rows[places] >= 0
            places[occupied] = (places[occupied] + 1) & mask


def _empty(capacity: int) -> tuple[Ids, Ids]:
    return np.zeros(capacity, np.int64), np.full(capacity, -1, np.int64)


def _places(ids: Ids, mask: int) -> Ids:
    hashed = mix(np.ascontiguousarray(ids).view(np.uint64)) & np.uint64(mask)
    return hashed.view(np.int64)
