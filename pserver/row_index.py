"""The index of a table: ids to row numbers. It grows part by part, so that no push waits for it. Pure.

When the index is half full, a table of twice the capacity is added, and each push moves a part of the
old entries into it. A new id goes into the old table unless its home there has moved already, so that the
memory of the new table is touched in order (decision 0038). A Python dict takes five times as many
bytes per row.
"""

from collections.abc import Iterator

import numpy as np

from pserver.hash_slots import BYTES_A_PLACE, Hashes, HashSlots, Ids, hash_ids
from pserver.memory import Memory

_LEAST = 64
_MOVED_A_PUSH, _MOVED_AN_ID = 4096, 4
"""Places that a push moves: at least this many, and more for each new id."""


class RowIndex:
    """A hash table that numbers rows from 0 in the order in which their ids are added."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.size = 0
        memory.reserve(_LEAST * BYTES_A_PLACE)
        self._slots = HashSlots(_LEAST)
        self._old: HashSlots | None = None
        """The table whose entries are being moved."""

    @property
    def nbytes(self) -> int:
        """Size of the index's tables in bytes."""
        old = 0 if self._old is None else self._old.capacity
        return (self._slots.capacity + old) * BYTES_A_PLACE

    @property
    def room(self) -> int:
        """Number of ids that the index can hold without growing."""
        return self._slots.capacity // 2

    def find(self, ids: Ids) -> Ids:
        """Returns the row of each id; -1 for unknown ids."""
        hashes = hash_ids(ids)
        if self._old is None:
            return self._slots.find(ids, hashes).rows
        rows = np.empty(len(ids), np.int64)
        for slots, part in self._parts(hashes):
            rows[part] = slots.find(ids[part], hashes[part]).rows
        return rows

    def add(self, ids: Ids) -> Ids:
        """Adds distinct new ids; returns their rows.

        Raises:
            FullError: The memory limit is reached; nothing has changed.
        """
        self.reserve(self.size + len(ids))
        self.advance(len(ids))
        rows = np.arange(self.size, self.size + len(ids), dtype=np.int64)
        self._insert(ids, rows)
        self.size += len(ids)
        return rows

    def remove(self, ids: Ids, moved: Ids) -> None:
        """Removes distinct known ids and renumbers others, so that rows stay numbered without gaps.

        Args:
            ids: The ids to remove.
            moved: Known ids that take over the rows of the first `len(moved)` removed ids, in this
                order.
        """
        rows, hashes = self.find(ids)[: len(moved)], hash_ids(ids)
        for slots, part in self._parts(hashes):
            slots.remove(slots.find(ids[part], hashes[part]).places)
        hashes = hash_ids(moved)
        for slots, part in self._parts(hashes):
            slots.renumber(slots.find(moved[part], hashes[part]).places, rows[part])
        self.size -= len(ids)

    def reserve(self, size: int) -> None:
        """Grows to hold a number of ids.

        Raises:
            FullError: The memory limit is reached; nothing has changed.
        """
        capacity = self._slots.capacity
        while capacity < 2 * size:
            capacity *= 2
        if capacity == self._slots.capacity:
            return
        self._memory.reserve(capacity * BYTES_A_PLACE)
        self.finish()
        self._old, self._slots = self._slots, HashSlots(capacity)
        entries = self._old.begin_emptying(_MOVED_A_PUSH)
        self._slots.insert(entries.ids, hash_ids(entries.ids), entries.rows)
        self.advance()

    def advance(self, ids: int = 0) -> None:
        """Moves a part of the old table's entries, if there is one.

        Args:
            ids: The number of new ids. More new ids move a larger part, so that the old table is
                empty long before the new one is full.
        """
        if self._old is None:
            return
        entries = self._old.take(_MOVED_A_PUSH + _MOVED_AN_ID * ids)
        if entries is not None:
            self._slots.insert(entries.ids, hash_ids(entries.ids), entries.rows)
            return
        self._memory.release(self._old.capacity * BYTES_A_PLACE)
        self._old = None

    def finish(self) -> None:
        """Moves all entries of the old table, and frees its memory."""
        while self._old is not None:
            self.advance(self._old.capacity)

    def drop(self) -> None:
        """Frees the memory."""
        self._memory.release(self.nbytes)

    def _insert(self, ids: Ids, rows: Ids) -> None:
        hashes = hash_ids(ids)
        for slots, part in self._parts(hashes):
            crowded = slots.insert(ids[part], hashes[part], rows[part])
            if len(crowded):  # a run of thousands of entries: only deliberately chosen ids cause it
                self.finish()
                ids, hashes, rows = ids[part][crowded], hashes[part][crowded], rows[part][crowded]
                self._slots.insert(ids, hashes, rows)

    def _parts(self, hashes: Hashes) -> Iterator[tuple[HashSlots, Ids | slice]]:
        """Yields the tables, with the indices of the ids that belong to each."""
        if self._old is None:
            yield self._slots, slice(None)
            return
        in_old = self._old.holds(hashes)
        yield self._slots, np.flatnonzero(~in_old)
        yield self._old, np.flatnonzero(in_old)
