"""Which new ids of a table get a row: those that enough pushes have held.

Candidates are counted exactly, in a fixed number of places that their hashes select. A candidate
loses its place to another one with the same place, so ids that occur once cost no memory, and an
id must occur often enough before some hundred thousand others replaced it (decision 0039).
"""

import numpy as np
from numpy.typing import NDArray

from pserver.hash_slots import Ids, hash_ids
from pserver.memory import Memory

_PLACES = 1 << 18
_BYTES_A_PLACE = 16


class Candidates:
    """The candidates of one table, and how many pushes have held each."""

    def __init__(self, admit_after: int, memory: Memory) -> None:
        """Starts without candidates.

        Args:
            admit_after: The push of an id, counted from 1, at which it gets a row.
            memory: The account of its memory.

        Raises:
            FullError: The memory limit is reached.
        """
        memory.reserve(_PLACES * _BYTES_A_PLACE)
        self._admit_after = admit_after
        self._ids = np.zeros(_PLACES, np.int64)
        self._pushes = np.zeros(_PLACES, np.int64)
        self.nbytes = _PLACES * _BYTES_A_PLACE

    def admits(self, ids: Ids) -> NDArray[np.bool_]:
        """Whether each id would get a row in a push that holds it now."""
        return self._counts(ids) + 1 >= self._admit_after

    def see(self, ids: Ids) -> None:
        """Counts a push for distinct ids that were not admitted."""
        counts, places = self._counts(ids), _places(ids)
        self._ids[places], self._pushes[places] = ids, counts + 1

    def entries(self) -> Ids:
        """All candidates, for a checkpoint: rows of id and number of pushes."""
        occupied = np.flatnonzero(self._pushes)
        return np.stack([self._ids[occupied], self._pushes[occupied]], axis=1)

    def restore(self, entries: Ids) -> None:
        """Adds candidates of a checkpoint."""
        places = _places(entries[:, 0])
        self._ids[places], self._pushes[places] = entries[:, 0], entries[:, 1]

    def _counts(self, ids: Ids) -> Ids:
        places = _places(ids)
        return np.where(self._ids[places] == ids, self._pushes[places], 0)


def _places(ids: Ids) -> Ids:
    return (hash_ids(ids) & np.uint64(_PLACES - 1)).view(np.int64)
