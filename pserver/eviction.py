"""Which rows of a table are evicted: the oldest or rarest of a window that moves over all rows.

A window costs the same at any number of rows, so no push waits for an eviction; the choice is
nearly that among all rows.
"""

import numpy as np

from pserver.hash_slots import Ids
from pserver.pages import Pages

LRU, LFU = "lru", "lfu"
VERSION, UPDATES = 0, 1
"""Columns of marks: the version of a row's newest update, and its number of updates."""
_MIN_ROWS = 4096
_ROWS_AN_EVICTION = 8


class EvictionWindow:
    """Chooses rows to evict by their marks."""

    def __init__(self, marks: Pages) -> None:
        self._marks = marks
        self._next = 0

    def unused_since(self, version: int, size: int, rows: int) -> Ids:
        """Rows of the next window whose newest update is older than a version.

        Args:
            version: The version.
            size: Number of rows of the table.
            rows: Number of rows in the push, which the window exceeds.
        """
        window = self._window(size, _MIN_ROWS + 2 * rows)
        return window[self._marks.read(window)[:, VERSION] < version]

    def least(self, kind: str, count: int, size: int, excluded: Ids) -> Ids:
        """The rows of the next window that were updated longest ago, or least often.

        Args:
            kind: `LRU` or `LFU`; the updates of all others in the window then count half.
            count: Number of rows to choose; fewer if there are not as many.
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
