import os
import resource
import struct
import zlib
from pathlib import Path

import edl
import numpy as np
import pytest
from edl import DataError, RecordError, records
from hypothesis import given
from hypothesis import strategies as st


def _written(path: Path, items: list[bytes]) -> Path:
    with records.Writer(path) as writer:
        assert list(range(len(items))) == [writer.write(item) for item in items]
    return path


@given(items=st.lists(st.binary(max_size=50), max_size=20))
def test_what_is_written_is_read(
    items: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any bytes, in any number, in any order of reading."""
    path = _written(tmp_path_factory.mktemp("records") / "a.rec", items)
    with records.Reader(path) as reader:
        assert len(items) == len(reader)
        assert items[::-1] == [reader[i] for i in reversed(range(len(items)))]
        with pytest.raises(IndexError):
            reader[len(items)]


def test_a_changed_record_is_named_and_others_are_read(tmp_path: Path) -> None:
    """A flipped bit is found by its checksum."""
    path = _written(tmp_path / "a.rec", [b"one", b"two", b"three"])
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"two")] ^= 1
    path.write_bytes(raw)
    with records.Reader(path) as reader:
        assert [reader[0], reader[2]] == [b"one", b"three"]
        with pytest.raises(RecordError, match=r"record 1: .*checksum"):
            reader[1]


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    """Its index is at its end, so a half copy never passes for a whole file."""
    path = _written(tmp_path / "a.rec", [b"one", b"two"])
    raw = path.read_bytes()
    for size in range(len(raw)):
        path.write_bytes(raw[:size])
        with pytest.raises(DataError, match=r"a\.rec"):
            records.Reader(path)


def test_other_files_and_missing_ones_are_refused(tmp_path: Path) -> None:
    """One line names the writer of such files."""
    (tmp_path / "a.csv").write_text("x,y\n1,2\n" * 10)
    with pytest.raises(DataError, match="not a record file"):
        records.Reader(tmp_path / "a.csv")
    with pytest.raises(DataError, match="cannot be read"):
        records.Reader(tmp_path / "b.rec")


def test_an_error_leaves_no_half_file(tmp_path: Path) -> None:
    """Neither under its name nor under another."""
    with pytest.raises(ZeroDivisionError), records.Writer(tmp_path / "a.rec") as writer:
        writer.write(b"one"[1 // 0 :])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", [97, 300])
def test_a_full_disk_keeps_no_half_file(tmp_path: Path, count: int) -> None:
    """Whether it is full at the index or before: the bytes of what failed would keep it full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (98_000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            _written(tmp_path / "a.rec", [bytes(1000)] * count)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert list(tmp_path.iterdir()) == []


def test_a_record_is_what_has_bytes(tmp_path: Path) -> None:
    """Of an array its bytes, more than its length; a text has none, and the file stays whole."""
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    with records.Writer(tmp_path / "a.rec") as writer:
        writer.write(numbers)  # type: ignore[arg-type]
        with pytest.raises(DataError, match=r"a record is 'str': write bytes"):
            writer.write("text")  # type: ignore[arg-type]
        writer.write(bytearray(b"last"))
    with records.Reader(tmp_path / "a.rec") as reader:
        assert [reader[0], reader[1]] == [numbers.tobytes(), b"last"]


def test_a_closed_writer_takes_nothing_more(tmp_path: Path) -> None:
    """Closing twice is harmless."""
    writer = records.Writer(tmp_path / "a.rec")
    writer.close()
    writer.close()
    writer.discard()
    with pytest.raises(DataError, match="is closed"):
        writer.write(b"one")


def test_record_files_are_a_data_set(tmp_path: Path) -> None:
    """With a decoder; file names are those of the description."""
    first = _written(tmp_path / "a.rec", [b"1", b"2"])
    second = _written(tmp_path / "b.rec", [b"3"])
    data = edl.from_records("train", first, second, decode=int)
    shape = data.source.shape()

    assert [(file["name"], file["records"]) for file in shape["files"]] == [
        ("a.rec", 2),
        ("b.rec", 1),
    ]
    assert data.source.read("a.rec", 1, 2) == [2]
    with pytest.raises(RecordError, match="was not given"):
        data.source.read("c.rec", 0, 1)
    with pytest.raises(RecordError, match="record 0: ValueError"):
        edl.from_records("train", _written(tmp_path / "c.rec", [b"x"]), decode=int).source.read(
            "c.rec", 0, 1
        )


def test_record_files_that_cannot_be_a_data_set_are_refused(tmp_path: Path) -> None:
    """None, an empty one, or two of one name."""
    path = _written(tmp_path / "a.rec", [b"1"])
    with pytest.raises(DataError, match="no file was given"):
        edl.from_records("train")
    with pytest.raises(DataError, match="two files of the name"):
        edl.from_records("train", path, path)
    with pytest.raises(DataError, match="holds no records"):
        edl.from_records("train", _written(tmp_path / "b.rec", []))


@pytest.mark.parametrize(
    "offsets", [(8, 1 << 62), (1 << 63, 8), (0, 8), (8, 8), (30, 8), (1 << 63, 1 << 63)]
)
def test_an_index_of_another_program_is_not_trusted(
    offsets: tuple[int, int], tmp_path: Path
) -> None:
    """Its checksum is right and its offsets are not: an error of the record, and of no other kind."""
    body = b"EDLREC1\n" + struct.pack("<II", 3, zlib.crc32(b"one")) + b"one"
    index = struct.pack("<QQQQ", *offsets, len(body), 2)
    path = tmp_path / "a.rec"
    path.write_bytes(body + index + struct.pack("<I4s", zlib.crc32(index), b"EDLX"))
    with records.Reader(path) as reader, pytest.raises(RecordError, match="its checksum is wrong"):
        reader[0]


def test_a_writer_follows_no_link_and_guesses_no_name(tmp_path: Path) -> None:
    """Another user of the folder can neither foresee nor redirect the unfinished file."""
    with records.Writer(tmp_path / "a.rec") as writer:
        (unfinished,) = tmp_path.glob(".a.rec.*.tmp")
        assert str(os.getpid()) not in unfinished.name.split(".")
        writer.write(b"one")
    assert [path.name for path in tmp_path.iterdir()] == ["a.rec"]
