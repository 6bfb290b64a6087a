"""A source of CSV files. Each row is a dict from column to cell, read by its offset in the file."""

from __future__ import annotations

import csv
import weakref
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from edl.errors import DataError, RecordError, one_line
from edl.master import protocol
from edl.overriding import override
from edl.sources.base import Collate, Dataset, FileNumbers, RecordwiseSource
from edl.sources.files import PathLike, open_by_name

Row = dict[str, str]


def from_csv(
    name: str,
    *paths: PathLike,
    convert: Callable[[Row], Any] | None = None,
    collate: Collate | None = None,
) -> Dataset:
    """Returns a data set of CSV files whose first line has the column names.

    Each file is scanned once for the offsets of its rows. The offsets take 8 bytes of memory per row.

    Args:
        name: Name of the data set.
        paths: The files; all trainers need the same names and contents.
        convert: Converts a row to a record; by default the row is the record.
        collate: Builds a batch from a list of records; by default the list is the batch.

    Raises:
        DataError: A file is missing, empty or not UTF-8, or two have the same name.
    """
    return Dataset(name, CsvSource(open_by_name(name, paths, CsvFile), convert, collate))


class CsvFile:
    """A CSV file and the offsets of its rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets = array("Q")
        self._open: IO[bytes] | None = None
        """The open file; None until a single row has been read."""
        try:
            with path.open("rb") as file:
                self.columns = _header(file, path)
                self._offsets.extend(_row_offsets(file))
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        if len(self._offsets) < 2:  # noqa: PLR2004 - one row has two offsets, its start and its end
            raise DataError(f"{path} has no rows below its column names")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def row(self, number: int) -> Row:
        """Reads one row, and keeps the file open for further rows in random order.

        Raises:
            RecordError: See `rows`.
        """
        begin = self._offsets[number]
        if self._open is None:
            self._open = self.path.open("rb")
            weakref.finalize(self, self._open.close)
        self._open.seek(begin)
        return self._row(number, self._open.read(self._offsets[number + 1] - begin))

    def rows(self, start: int, end: int) -> Iterator[Row]:
        """Yields rows [start, end).

        Raises:
            RecordError: A row has more or fewer cells than there are columns, or is not UTF-8.
        """
        with self.path.open("rb") as file:
            file.seek(self._offsets[start])
            raw = file.read(self._offsets[end] - self._offsets[start])
        for number in range(start, end):
            begin = self._offsets[number] - self._offsets[start]
            yield self._row(number, raw[begin : self._offsets[number + 1] - self._offsets[start]])

    def _row(self, number: int, raw: bytes) -> Row:
        try:
            cells = next(csv.reader([raw.decode().rstrip("\r\n")], strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise RecordError(number, f"{self.path.name}: {one_line(error)}") from error
        if len(cells) != len(self.columns):
            text = f"{self.path.name}: {len(cells)} cells under {len(self.columns)} columns"
            raise RecordError(number, text)
        return dict(zip(self.columns, cells))


class CsvSource(RecordwiseSource):
    """A `Source` of CSV files."""

    def __init__(
        self,
        tables: dict[str, CsvFile],
        convert: Callable[[Row], Any] | None,
        collate: Collate | None,
    ) -> None:
        super().__init__(collate)
        self._tables, self._convert = tables, convert
        self._numbers = FileNumbers((name, len(table)) for name, table in tables.items())

    @override
    def shape(self) -> protocol.Json:
        return {"files": [{"name": name, "records": len(t)} for name, t in self._tables.items()]}

    @override
    def read(self, file: str | None, start: int, end: int) -> list[Any]:
        """Reads adjacent rows with a single read of the file."""
        table = self._tables.get(file or "")
        if table is None:
            raise DataError(f"the master knows a file {file!r} that this trainer was not given")
        return [self._convert_row(start + i, row) for i, row in enumerate(table.rows(start, end))]

    @override
    def locate(self, number: int) -> tuple[str | None, int]:
        return self._numbers.split(number)

    @override
    def read_one(self, file: str | None, number: int) -> Any:
        return self._convert_row(number, self._tables[file or ""].row(number))

    def _convert_row(self, number: int, row: Row) -> Any:
        if self._convert is None:
            return row
        try:
            return self._convert(row)
        except Exception as error:
            raise RecordError(number, error) from error


def _header(file: IO[bytes], path: Path) -> list[str]:
    try:
        cells = next(csv.reader([file.readline().decode("utf-8-sig")]), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} does not begin with column names: {one_line(error)}") from error
    if not cells:
        raise DataError(f"{path} is empty: its first line must name the columns")
    if len(set(cells)) != len(cells):
        raise DataError(f"{path} names a column twice: {', '.join(cells)}")
    return cells


def _row_offsets(file: IO[bytes]) -> Iterator[int]:
    """Yields the offset of each row, then the end of the last row; quoted cells may contain line ends."""
    offset = file.tell()
    quotes, row_start = 0, offset
    for line in file:
        at_row_start = row_start == offset
        offset += len(line)
        if at_row_start and line in (b"\n", b"\r\n"):
            row_start = offset
            continue
        quotes += line.count(b'"')
        if quotes % 2 == 0 or (at_row_start and not _ends_in_quotes(line)):
            quotes = 0
            yield row_start
            row_start = offset
    if row_start != offset:
        yield row_start
    yield offset


def _ends_in_quotes(line: bytes) -> bool:
    """Returns whether the line ends in an open quoted cell, so that the row continues in the next line.

    A quote within an unquoted cell, as in `12" pipe`, is an ordinary character. Counted as an opening
    quote, it would join all lines up to the next quote into one row.
    """
    try:
        next(csv.reader([line.decode("latin-1")], strict=True), None)  # quotes and commas are ASCII
    except csv.Error as error:  # the text ended within quotes, or a cell exceeds csv's limit
        return "expected after" not in str(error)
    return False
