"""From ids to numbers of rows: a hash table in two arrays, asked for thousands of ids at once.

Open addressing with linear probing; at most half full. Rows are never taken out, so a number once
given stays. A dict of Python takes five times as many bytes for each row.
"""

import numpy as np
from numpy.typing import NDArray

from pserver.memory import Memory
from pserver.seeding import mix

Ids = NDArray[np.int64]

_LEAST = 64
_BYTES_A_PLACE = 16


class Index:
    """Numbers rows from 0 in the order in which their ids came."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.size = 0
        memory.take(_LEAST * _BYTES_A_PLACE)
        self._ids, self._rows = _empty(_LEAST)

    @property
    def nbytes(self) -> int:
        """Of its arrays."""
        return len(self._ids) * _BYTES_A_PLACE

    def find(self, ids: Ids) -> Ids:
        """The row of each id; -1 for those it does not know."""
        found = np.full(len(ids), -1, np.int64)
        mask = len(self._ids) - 1
        left = np.arange(len(ids))
        places = _places(ids, mask)
        while len(left):
            here = self._rows[places]
            same = self._ids[places] == ids[left]
            hit = same & (here >= 0)
            found[left[hit]] = here[hit]
            on = ~hit & (here >= 0)
            left, places = left[on], (places[on] + 1) & mask
        return found

    def add(self, ids: Ids) -> Ids:
        """Rows for ids that are unique and that it does not know.

        Raises:
            FullError: There is no room; nothing has changed.
        """
        self._reserve(self.size + len(ids))
        rows = np.arange(self.size, self.size + len(ids), dtype=np.int64)
        self._insert(ids, rows)
        self.size += len(ids)
        return rows

    def ids(self) -> Ids:
        """All ids, in the order of their rows."""
        taken = self._rows >= 0
        found = np.empty(self.size, np.int64)
        found[self._rows[taken]] = self._ids[taken]
        return found

    def drop(self) -> None:
        """It is not needed any more."""
        self._memory.give(self.nbytes)

    def _reserve(self, size: int) -> None:
        capacity = len(self._ids)
        while capacity < 2 * size:
            capacity *= 2
        if capacity == len(self._ids):
            return
        self._memory.take(capacity * _BYTES_A_PLACE)
        before = self.nbytes
        ids = self.ids()
        self._ids, self._rows = _empty(capacity)
        self._insert(ids, np.arange(len(ids), dtype=np.int64))
        self._memory.give(before)

    def _insert(self, ids: Ids, rows: Ids) -> None:
        mask = len(self._ids) - 1
        left = np.arange(len(ids))
        places = _places(ids, mask)
        while len(left):
            free = np.flatnonzero(self._rows[places] < 0)
            _, first = np.unique(places[free], return_index=True)
            mine = free[first]  # of several that want one place, the first takes it
            self._ids[places[mine]] = ids[left[mine]]
            self._rows[places[mine]] = rows[left[mine]]
            on = np.ones(len(left), bool)
            on[mine] = False
            left, places = left[on], places[on]
            taken = self._rows[places] >= 0
            places[taken] = (places[taken] + 1) & mask


def _empty(capacity: int) -> tuple[Ids, Ids]:
    return np.zeros(capacity, np.int64), np.full(capacity, -1, np.int64)


def _places(ids: Ids, mask: int) -> Ids:
    hashed = mix(np.ascontiguousarray(ids).view(np.uint64)) & np.uint64(mask)
    return hashed.view(np.int64)
