import csv
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import edl
import numpy as np
import pytest
from edl import DataError, RecordError


def _read(data: edl.Dataset, start: int, end: int, file: str | None = None) -> Any:
    source = data.source
    return source.batch([source.read(file, start, end)])


def test_arrays_of_equal_length_become_tuples() -> None:
    """Slices of numpy arrays are joined over task borders, and are copies."""
    images, labels = np.arange(12.0).reshape(6, 2), np.arange(6)
    source = edl.from_arrays("digits", images, labels).source
    x, y = source.batch([source.read(None, 0, 2), source.read(None, 4, 6)])
    x[:] = 0

    assert y.tolist() == [0, 1, 4, 5]
    assert images[4].tolist() == [8, 9]
    assert source.shape() == {"records": 6}


def test_one_array_is_yielded_as_it_is() -> None:
    """Lists work too, without numpy."""
    source = edl.from_arrays("digits", [1, 2, 3]).source

    assert source.batch([source.read(None, 0, 1), source.read(None, 2, 3)]) == [1, 3]


class _Sums(list[int]):
    """A column whose `+` adds element by element, as those of pandas."""

    def __getitem__(self, key: Any) -> Any:
        return _Sums(super().__getitem__(key))

    def __add__(self, other: Any) -> Any:
        return _Sums(a + b for a, b in zip(self, other, strict=True))


def test_arrays_whose_plus_adds_numbers_are_refused() -> None:
    """Otherwise a batch would be the sum of its records, and a model would learn that."""
    with pytest.raises(DataError, match=r"_Sums has no slices that \+ joins: give numpy.asarray"):
        edl.from_arrays("digits", [1, 2, 3], _Sums([1, 2, 3]))


def test_tensors_are_joined_by_their_own_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their `+` adds numbers; the framework's function is called with all slices."""
    tensor: Any = type("Tensor", (_Sums,), {"__module__": "torch"})
    tensor.__getitem__ = lambda self, key: tensor(list.__getitem__(self, key))
    joined: Any = ModuleType("torch")
    joined.cat = lambda parts: tensor(number for part in parts for number in part)
    monkeypatch.setitem(sys.modules, "torch", joined)
    source: Any = edl.from_arrays("digits", tensor([5, 6, 7, 8])).source

    assert source.batch([source.pick([3, 0, 1])]) == [8, 5, 6]
    assert source.batch([source.read(None, 0, 2), source.read(None, 2, 4)]) == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("arrays", "text"),
    [((), "at least one array"), (([1], [1, 2]), r"different lengths \[1, 2\]"), (([],), "empty")],
)
def test_arrays_that_cannot_be_are_refused(arrays: tuple[Any, ...], text: str) -> None:
    """No arrays, different lengths, nothing in them."""
    with pytest.raises(DataError, match=text):
        edl.from_arrays("digits", *arrays)


@pytest.mark.parametrize("name", ["", "a/b", "a\n", "größe", "-a"])
def test_a_data_set_needs_a_plain_name(name: str) -> None:
    """It becomes part of task ids and of addresses."""
    with pytest.raises(DataError, match="name"):
        edl.from_function(name, int, 4)


def test_csv_rows_are_found_by_number(tmp_path: Path) -> None:
    """Quoted cells may hold commas, quotes and line ends; empty lines are not rows."""
    path = tmp_path / "train.csv"
    rows = [["1", "a,b"], ["2", 'say "no"'], ["3", "two\nlines"], ["4", "plain"]]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *rows[:2]])
        file.write("\r\n")
        csv.writer(file).writerows(rows[2:])
    data = edl.from_csv("train", path)

    assert data.source.shape() == {"files": [{"name": "train.csv", "records": 4}]}
    assert [{"id": i, "text": t} for i, t in rows] == _read(data, 0, 4, "train.csv")
    assert _read(data, 2, 3, "train.csv") == [{"id": "3", "text": "two\nlines"}]


def test_a_quote_within_a_cell_ends_no_row_early_and_none_late(tmp_path: Path) -> None:
    """Inches and the like, as csv.reader reads them: the rows below are rows of their own."""
    path = tmp_path / "pipes.csv"
    path.write_text('id,size\n1,12" pipe\n2,plain\n3,"4"" bolt,\nlong"\n4,5"\n5,\u00fc"\n')
    data = edl.from_csv("train", path)

    sizes = ['12" pipe', "plain", '4" bolt,\nlong', '5"', '\u00fc"']
    assert [row["size"] for row in _read(data, 0, 5, "pipes.csv")] == sizes
    assert data.source.shape()["files"][0]["records"] == len(sizes)


def test_csv_rows_are_converted_and_collated(tmp_path: Path) -> None:
    """The last line needs no line end, the first may have a byte order mark."""
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfx,y\n1,2\n3,4")
    data = edl.from_csv("train", tmp_path / "a.csv", convert=lambda row: int(row["x"]), collate=sum)

    assert _read(data, 0, 2, "a.csv") == 4


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (b"1,2,3\n", "3 cells under 2 columns"),
        (b"\xff,1\n", "UnicodeDecodeError"),
        (b'"1,2\n', "unexpected end"),
        (b"one,2\n", "ValueError"),
    ],
)
def test_a_bad_csv_row_is_named(tmp_path: Path, row: bytes, text: str) -> None:
    """Its number in its file is part of the error; its neighbours can be read."""
    (tmp_path / "a.csv").write_bytes(b"x,y\n0,0\n" + row)
    data = edl.from_csv("train", tmp_path / "a.csv", convert=lambda row: int(row["x"]))

    assert _read(data, 0, 1, "a.csv") == [0]
    with pytest.raises(RecordError, match=f"record 1: .*{text}") as caught:
        _read(data, 1, 2, "a.csv")
    assert caught.value.record == 1


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty"),
        (b"x,y\n", "no rows"),
        (b"x,x\n1,2\n", "names a column twice"),
        (b"\xff\n1\n", "does not begin with column names"),
    ],
)
def test_a_csv_file_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None, text: str
) -> None:
    """Before any task is leased."""
    path = tmp_path / "a.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.csv .*{text}"):
        edl.from_csv("train", path)


def test_csv_files_need_names_of_their_own(tmp_path: Path) -> None:
    """The master knows files by name only; and there must be one."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match="two files of the name"):
        edl.from_csv("train", tmp_path / "a" / "x.csv", tmp_path / "b" / "x.csv")
    with pytest.raises(DataError, match="no file was given"):
        edl.from_csv("train")
    with pytest.raises(DataError, match="was not given"):
        _read(edl.from_csv("train", tmp_path / "a" / "x.csv"), 0, 1, "y.csv")


def test_plain_files_are_records_in_the_order_of_their_names(tmp_path: Path) -> None:
    """Each is its bytes, or what a function makes of it."""
    for name in ("b", "a", "c"):
        (tmp_path / name).write_text(name)

    assert _read(edl.from_files("train", tmp_path.iterdir()), 0, 2) == [b"a", b"b"]
    sizes = edl.from_files("train", tmp_path.iterdir(), lambda path: path.stat().st_size)
    assert _read(sizes, 0, 3) == [1, 1, 1]
    with pytest.raises(DataError, match="no file was given"):
        edl.from_files("train", [])


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    """By its number; its task fails, others go on."""
    (tmp_path / "a").write_text("a")
    data = edl.from_files("train", [tmp_path / "a", tmp_path / "b"])
    with pytest.raises(RecordError, match="record 1: FileNotFoundError"):
        _read(data, 0, 2)


def test_functions_may_be_endless() -> None:
    """Without a size a data set is a stream."""
    assert edl.from_function("train", int, None).source.shape() == {"stream": True}
    with pytest.raises(DataError, match="size is 0"):
        edl.from_function("train", int, 0)
