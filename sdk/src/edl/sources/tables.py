"""CSV files: rows are dicts by column, found again by their place in the file."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from edl import wire
from edl.errors import DataError, RecordError, one_line
from edl.sources.base import Collate, Dataset, Records
from edl.sources.files import PathLike

Row = dict[str, str]


def from_csv(
    name: str,
    *paths: PathLike,
    convert: Callable[[Row], Any] | None = None,
    collate: Collate | None = None,
) -> Dataset:
    """A data set of CSV files that begin with a line of column names.

    Each file is read through once, to know where its rows are: 8 bytes of memory a row.

    Args:
        name: The data set's.
        paths: The files; each trainer needs the same names and contents.
        convert: Makes a record of a row; the row itself by default.
        collate: Makes a batch of a list of records; lists by default.

    Raises:
        DataError: A file is missing, empty or no UTF-8, or two have the same name.
    """
    tables: dict[str, Table] = {}
    for path in paths:
        table = Table(Path(path))
        if tables.setdefault(table.path.name, table) is not table:
            raise DataError(f"data set {name!r} has two files of the name {table.path.name!r}")
    if not tables:
        raise DataError(f"data set {name!r} is empty: no file was given")
    return Dataset(name, Tables(tables, convert, collate))


class Table:
    """One file and where its rows begin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places = array("Q")
        try:
            with path.open("rb") as file:
                self.columns = _header(file, path)
                self._places.extend(_row_places(file))
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        if len(self._places) < 2:  # noqa: PLR2004 - the end of the last row is one of them
            raise DataError(f"{path} has no rows below its column names")

    def __len__(self) -> int:
        return len(self._places) - 1

    def rows(self, start: int, end: int) -> Iterator[Row]:
        """Rows [start, end).

        Raises:
            RecordError: A row has more or fewer cells than there are columns, or is no UTF-8.
        """
        with self.path.open("rb") as file:
            file.seek(self._places[start])
            raw = file.read(self._places[end] - self._places[start])
        for number in range(start, end):
            begin = self._places[number] - self._places[start]
            yield self._row(number, raw[begin : self._places[number + 1] - self._places[start]])

    def _row(self, number: int, raw: bytes) -> Row:
        try:
            cells = next(csv.reader([raw.decode().rstrip("\r\n")], strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise RecordError(number, f"{self.path.name}: {one_line(error)}") from error
        if len(cells) != len(self.columns):
            text = f"{self.path.name}: {len(cells)} cells under {len(self.columns)} columns"
            raise RecordError(number, text)
        return dict(zip(self.columns, cells))


class Tables(Records):
    """A `Source` with files."""

    def __init__(
        self,
        tables: dict[str, Table],
        convert: Callable[[Row], Any] | None,
        collate: Collate | None,
    ) -> None:
        super().__init__(collate)
        self._tables, self._convert = tables, convert

    def shape(self) -> wire.Json:
        """As in `Source`."""
        return {"files": [{"name": name, "records": len(t)} for name, t in self._tables.items()]}

    def read(self, file: str | None, start: int, end: int) -> list[Any]:
        """As in `Source`; neighbouring rows are read at once."""
        table = self._tables.get(file or "")
        if table is None:
            raise DataError(f"the master knows a file {file!r} that this trainer was not given")
        return [self._made(start + i, row) for i, row in enumerate(table.rows(start, end))]

    def _made(self, number: int, row: Row) -> Any:
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


def _row_places(file: IO[bytes]) -> Iterator[int]:
    """Where rows begin, and at last where the last one ends; quoted cells may hold line ends."""
    place = file.tell()
    quotes, begun = 0, place
    for line in file:
        fresh = begun == place
        place += len(line)
        if fresh and line in (b"\n", b"\r\n"):
            begun = place
            continue
        quotes += line.count(b'"')
        if quotes % 2 == 0:
            yield begun
            begun = place
    if begun != place:
        yield begun
    yield place
