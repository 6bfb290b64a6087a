"""A growing array of rows in pages: it grows without copies, and views copy only pages. Pure."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pserver.memory import Array, Block, Views, zeros

Rows = NDArray[np.int64]

PAGE_BYTES = 1 << 19
"""Approximate size of a page; its number of rows is a power of two."""
_FLOAT_BYTES = 4


def rows_a_page(width: int) -> int:
    """Returns the number of rows of this width in a page, a power of two."""
    fit = max(1, PAGE_BYTES // (width * _FLOAT_BYTES))
    return 1 << (fit.bit_length() - 1)


class Pages:
    """A paged array of rows, addressed by number; unwritten rows are zeros."""

    def __init__(
        self,
        width: int,
        views: Views,
        dtype: type[np.generic] = np.float32,
        page_rows: int | None = None,
    ) -> None:
        """Creates an empty array.

        Args:
            width: Columns of a row.
            views: The open views of the array.
            dtype: Type of the numbers.
            page_rows: Rows of a page, a power of two; by default as many as fit `PAGE_BYTES`.
        """
        self.width, self._dtype = width, dtype
        self._views = views
        self._rows = page_rows or rows_a_page(width)
        self._shift, self._mask = self._rows.bit_length() - 1, self._rows - 1
        self._blocks: list[Block] = []

    @property
    def arrays(self) -> list[Array]:
        """The current pages; an open view keeps them unchanged."""
        return [block.array for block in self._blocks]

    @property
    def nbytes(self) -> int:
        """Bytes of all pages."""
        return sum(block.array.nbytes for block in self._blocks)

    @property
    def capacity(self) -> int:
        """Number of rows of all pages."""
        return len(self._blocks) * self._rows

    def reserve(self, rows: int) -> None:
        """Grows to at least `rows` rows.

        Raises:
            FullError: The memory limit is reached; existing rows are kept.
        """
        while len(self._blocks) * self._rows < rows:
            self._blocks.append(zeros((self._rows, self.width), self._views, self._dtype))

    def make_writable(self, rows: Rows) -> None:
        """Copies those pages of the rows that a view holds, so that the rows may be written.

        Raises:
            FullError: The memory limit does not allow the copies.
        """
        if self._views.newest:
            for page in np.unique(rows >> self._shift).tolist():
                self._blocks[page].make_writable()

    def write(self, rows: Rows, values: Array) -> None:
        """Writes distinct rows; call `reserve` and `make_writable` before."""
        for page, places, offsets in self._split(rows):
            self._blocks[page].array[offsets] = values[places]

    def read(self, rows: Rows, pages: Sequence[Array] | None = None) -> Array:
        """Returns a copy of rows.

        Args:
            rows: Row numbers.
            pages: `arrays` as a view saved them; the current ones by default.
        """
        values = np.empty((len(rows), self.width), self._dtype)
        arrays = self.arrays if pages is None else pages
        for page, places, offsets in self._split(rows):
            values[places] = arrays[page][offsets]
        return values

    def trim(self, rows: int) -> None:
        """Frees the pages after these rows, but keeps one spare page."""
        while self.capacity - 2 * self._rows >= rows:
            self._blocks.pop().drop()

    def drop(self) -> None:
        """Frees all pages; open views still hold their arrays."""
        for block in self._blocks:
            block.drop()
        self._blocks = []

    def _split(self, rows: Rows) -> Iterator[tuple[int, Rows | slice, Rows]]:
        """Groups row numbers by page: (page, indices into `rows`, offsets in the page)."""
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
