"""Rows of equal width that only grow: in pages, so that growth copies nothing and views copy little."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pserver.memory import Block, Floats, Views, zeros

Rows = NDArray[np.int64]

PAGE_BYTES = 1 << 19
"""About so many; a page is a power of two of rows."""
_FLOAT_BYTES = 4


def rows_a_page(width: int) -> int:
    """How many rows fit."""
    fit = max(1, PAGE_BYTES // (width * _FLOAT_BYTES))
    return 1 << (fit.bit_length() - 1)


class Pages:
    """Rows by number; unwritten ones are zeros."""

    def __init__(self, width: int, views: Views) -> None:
        self.width = width
        self._views = views
        self._rows = rows_a_page(width)
        self._shift, self._mask = self._rows.bit_length() - 1, self._rows - 1
        self._blocks: list[Block] = []

    @property
    def arrays(self) -> list[Floats]:
        """The pages as they are now; a view that is open keeps them so."""
        return [block.array for block in self._blocks]

    @property
    def nbytes(self) -> int:
        """Of all pages."""
        return sum(block.array.nbytes for block in self._blocks)

    def reserve(self, rows: int) -> None:
        """Makes room for so many rows in all.

        Raises:
            FullError: There is none; what was there stays.
        """
        while len(self._blocks) * self._rows < rows:
            self._blocks.append(zeros((self._rows, self.width), self._views))

    def free(self, rows: Rows) -> None:
        """Makes the pages of these rows such that they may be written.

        Raises:
            FullError: There is no room for copies.
        """
        if self._views.newest:
            for page in np.unique(rows >> self._shift).tolist():
                self._blocks[page].free()

    def put(self, rows: Rows, values: Floats) -> None:
        """Writes rows, each named once; `free` and `reserve` came before."""
        for page, places, offsets in self._split(rows):
            self._blocks[page].array[offsets] = values[places]

    def take(self, rows: Rows, pages: Sequence[Floats] | None = None) -> Floats:
        """A copy of rows.

        Args:
            rows: Their numbers.
            pages: As `arrays` gave them to a view; the present ones by default.
        """
        found = np.empty((len(rows), self.width), np.float32)
        arrays = self.arrays if pages is None else pages
        for page, places, offsets in self._split(rows):
            found[places] = arrays[page][offsets]
        return found

    def drop(self) -> None:
        """They are not needed any more."""
        for block in self._blocks:
            block.drop()
        self._blocks = []

    def _split(self, rows: Rows) -> Iterator[tuple[int, Rows | slice, Rows]]:
        """Page, places in `rows`, places in the page."""
        pages, offsets = rows >> self._shift, rows & self._mask
        if len(rows) and len(self._blocks) == 1:
            yield 0, slice(None), offsets
            return
        order = np.argsort(pages, kind="stable")
        ordered = pages[order]
        cuts = np.flatnonzero(np.diff(ordered)) + 1
        for places in np.split(order, cuts):
            if len(places):
                yield int(pages[places[0]]), places, offsets[places]
