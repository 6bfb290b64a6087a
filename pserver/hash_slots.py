"""A hash table of fixed capacity from ids to row numbers, with vectorised operations.

Open addressing with linear probing. The home of an id is the place that its hash selects; occupied
places without a gap form a run. Removal shifts the following entries of the run back, so no tombstones
lengthen later searches. A table can be emptied part by part and stays usable meanwhile: it holds the
ids whose home is in the remaining part.
"""

import contextlib
import mmap
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Which = NDArray[np.bool_]

BYTES_A_PLACE = 16
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_MAPPED_BYTES = 1 << 20
"""Size of the smallest table whose memory is returned part by part while the table is emptied."""


class Entries(NamedTuple):
    """Places and row numbers of entries; -1 for ids that are not in the table."""

    places: Ids
    rows: Ids


class TakenEntries(NamedTuple):
    """Ids that were taken out of a table, and their row numbers."""

    ids: Ids
    rows: Ids


def mix(values: Hashes) -> Hashes:
    """Mixes all 64 bits: the finaliser of splitmix64 (Steele, Lea and Flood, 2014), a bijection."""
    mixed = values + GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def hash_ids(ids: Ids) -> Hashes:
    """Returns the hashes of ids. The hashes do not depend on a table's capacity."""
    return mix(np.ascontiguousarray(ids).view(np.uint64))


class HashSlots:
    """One hash table; the caller keeps it at most half full."""

    def __init__(self, capacity: int) -> None:
        """Creates an empty table; the operating system provides memory on first use.

        Args:
            capacity: Number of places, a power of two.
        """
        self.capacity = capacity
        size = capacity * BYTES_A_PLACE
        self._map = mmap.mmap(-1, size, _PRIVATE) if size >= _MAPPED_BYTES else None
        if self._map is not None:
            with contextlib.suppress(OSError):  # without huge pages, the table is only slower
                self._map.madvise(mmap.MADV_HUGEPAGE)
        buffer = bytearray(size) if self._map is None else self._map
        self._places = np.frombuffer(buffer, np.int64).reshape(capacity, 2)
        """For each place: the id, and the row number plus one. A 0 in the second column marks an
        empty place. One cache line holds both numbers."""
        self._ids, self._rows = self._places[:, 0], self._places[:, 1]
        self._first, self._last = 0, capacity
        """The range of homes that the table holds; it shrinks while the table is emptied."""

    def find(self, ids: Ids, hashes: Hashes) -> Entries:
        """Returns the place and the row number of each id; -1 for ids that are not in the table."""
        # one vectorised look at all homes: most ids are found there
        places = self._homes(hashes)
        entries = self._places.take(places, axis=0, mode="wrap")
        rows = entries[:, 1] - 1
        other = np.flatnonzero((entries[:, 0] != ids) & (rows >= 0))
        result = Entries(np.where(rows >= 0, places, -1), rows)
        result.places[other] = result.rows[other] = -1
        # the other ids are in later places of their runs, or not in the table
        pending, places = self._next(other, places[other])
        while len(pending):
            entries = self._places.take(places, axis=0, mode="wrap")
            same = (entries[:, 0] == ids[pending]) & (entries[:, 1] > 0)
            result.places[pending[same]] = places[same]
            result.rows[pending[same]] = entries[same, 1] - 1
            on = (entries[:, 1] > 0) & ~same
            pending, places = self._next(pending[on], places[on])
        return result

    def renumber(self, places: Ids, rows: Ids) -> None:
        """Changes the row numbers at occupied places."""
        self._rows[places] = rows + 1

    def insert(self, ids: Ids, hashes: Hashes, rows: Ids) -> Ids:
        """Adds distinct ids that are not in the table.

        Returns:
            Indices of the ids that found no place; empty unless the table is being emptied.
        """
        pending, places = np.arange(len(ids)), self._homes(hashes)
        placed = np.zeros(len(ids), bool)
        while len(pending):
            free = np.flatnonzero(self._rows[places] == 0)
            at, which = places[free], pending[free]
            self._rows[at] = rows[which] + 1  # if several ids probe one place, the last one wins
            won = self._rows[at] == rows[which] + 1
            self._ids[at[won]] = ids[which[won]]
            placed[which[won]] = True
            on = ~placed[pending]
            pending, places = self._next(pending[on], places[on])
        return np.flatnonzero(~placed)

    def remove(self, places: Ids) -> None:
        """Removes the entries at distinct places; other entries may move.

        Entries of one run are removed one after the other, the last one first, because each removal
        shifts the entries behind it. Different runs are handled together.
        """
        steps = self._steps_to_empty(places)
        runs = (places + steps) & (self.capacity - 1)
        order = np.lexsort((steps, runs))
        starts = np.flatnonzero(np.diff(runs[order], prepend=-1))
        ranks = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        for rank in range(int(ranks.max(initial=-1)) + 1):
            self._remove_apart(places[order[ranks == rank]])

    # -- emptying ----------------------------------------------------------------------------

    def begin_emptying(self, min_places: int) -> TakenEntries:
        """Takes out the entries of the last places, so that the rest needs no wrap-around."""
        start = max(0, self.capacity - min_places)
        while start and self._rows[start]:
            start -= 1
        self._last = start + 1
        return self._take(start, self.capacity)

    def take(self, min_places: int) -> TakenEntries | None:
        """Takes out the next entries, from the first place on.

        Args:
            min_places: Least number of places to empty; more are emptied, up to the next empty
                place.

        Returns:
            The entries; None if the table is empty.
        """
        if self._first == self.capacity:
            return None
        start, stop = self._first, min(self.capacity, self._first + min_places)
        while stop < self.capacity and self._rows[stop]:
            stop += 1
        self._first = stop
        entries = self._take(start, stop)
        if self._map is not None:
            page = mmap.PAGESIZE
            first, last = (place * BYTES_A_PLACE // page * page for place in (start, stop))
            if first < last:
                self._map.madvise(mmap.MADV_DONTNEED, first, last - first)
        return entries

    def holds(self, hashes: Hashes) -> Which:
        """Returns whether ids with these hashes belong to the remaining part of the table."""
        homes = self._homes(hashes)
        return (homes >= self._first) & (homes < self._last)

    def _take(self, start: int, stop: int) -> TakenEntries:
        occupied = start + np.flatnonzero(self._rows[start:stop])
        entries = TakenEntries(self._ids[occupied], self._rows[occupied] - 1)
        self._rows[occupied] = 0
        return entries

    # -- places ------------------------------------------------------------------------------

    def _remove_apart(self, holes: Ids) -> None:
        """Removes entries that are all in different runs."""
        holes = holes.copy()
        which, places = self._next(np.arange(len(holes)), holes)
        while len(which):
            occupied = self._rows[places] > 0
            which, places = which[occupied], places[occupied]
            ids, mask = self._ids[places], self.capacity - 1
            from_home = (places - self._homes(hash_ids(ids))) & mask
            # an entry may fill the hole unless its home is behind the hole
            moves = from_home >= ((places - holes[which]) & mask)
            hole, place = holes[which[moves]], places[moves]
            self._ids[hole], self._rows[hole] = ids[moves], self._rows[place]
            holes[which[moves]] = place
            which, places = self._next(which, places)
        self._rows[holes] = 0

    def _steps_to_empty(self, places: Ids) -> Ids:
        """Returns the number of steps from each occupied place to the end of its run."""
        steps = np.zeros(len(places), np.int64)
        pending = np.arange(len(places))
        while len(pending):
            steps[pending] += 1
            pending, places = self._next(pending, places)
            occupied = self._rows[places] > 0
            pending, places = pending[occupied], places[occupied]
        return steps

    def _next(self, pending: Ids, places: Ids) -> tuple[Ids, Ids]:
        """Returns the next places; a table that is being emptied does not wrap around."""
        places = places + 1
        if self._last == self.capacity:
            return pending, places & (self.capacity - 1)
        on = places < self.capacity
        return pending[on], places[on]

    def _homes(self, hashes: Hashes) -> Ids:
        return (hashes & np.uint64(self.capacity - 1)).view(np.int64)
