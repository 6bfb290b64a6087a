"""Data sets from files: their records, and the errors of unreadable files."""

import struct
import zipfile
from pathlib import Path
from typing import Any

import edl
import numpy as np
import pytest
from edl import DataError
from edl import model as models
from edl.model.npz_files import read_arrays


def _npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def _arrays(start: int = 0, size: int = 6) -> dict[str, Any]:
    numbers = np.arange(start, start + size)
    return {"images": np.stack([numbers] * 3, 1).astype(np.float32), "labels": numbers}


def _whole(data: edl.Dataset) -> Any:
    """One batch of everything, read in blocks of two."""
    files = data.source.shape()["files"]
    blocks = [
        data.source.read(file["name"], at, min(at + 2, file["records"]))
        for file in files
        for at in range(0, file["records"], 2)
    ]
    return data.source.batch(blocks)


def test_npz_files_give_arrays_by_name(tmp_path: Path) -> None:
    """In the order of the file; a batch is a copy."""
    data = models.data(_npz(tmp_path / "digits-train.npz", **_arrays()))
    batch = _whole(data)

    assert data.name == "digits-train"
    assert data.source.shape() == {"files": [{"name": "digits-train.npz", "records": 6}]}
    assert list(batch) == ["images", "labels"]
    assert batch["labels"].tolist() == [0, 1, 2, 3, 4, 5]
    assert models.count(batch) == 6
    batch["labels"][:] = 9
    assert _whole(data)["labels"].tolist() == [0, 1, 2, 3, 4, 5]


def test_arrays_stay_on_disk_where_they_can(tmp_path: Path) -> None:
    """Whatever order their numbers have there; what is compressed, empty or of objects is read."""
    across = np.asfortranarray(_arrays()["images"])
    mapped = read_arrays(_npz(tmp_path / "a.npz", x=across, none=np.zeros((6, 0))))
    np.savez_compressed(tmp_path / "b.npz", x=across)
    small = read_arrays(tmp_path / "b.npz")

    assert isinstance(mapped["x"].base, np.memmap)
    assert not isinstance(small["x"].base, np.memmap)
    assert mapped["none"].shape == (6, 0)
    assert np.array_equal(mapped["x"], across)
    assert np.array_equal(small["x"], across)


def test_unusual_headers_are_read_too(tmp_path: Path) -> None:
    """Of numpy's third format, for names of fields in other alphabets."""
    unusual = np.zeros(2, [("\u03b1", "f4")])
    with pytest.warns(UserWarning, match="format"):
        np.savez(tmp_path / "a.npz", unusual=unusual)

    assert read_arrays(tmp_path / "a.npz")["unusual"].dtype == unusual.dtype


def test_a_damaged_compressed_file_is_named(tmp_path: Path) -> None:
    """Whatever byte is wrong: the archive's reader raises errors of six kinds."""
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(40))
    whole = (tmp_path / "a.npz").read_bytes()
    damaged = 0
    for place in range(0, len(whole), 3):
        for mask in (1, 8, 255):
            raw = bytearray(whole)
            raw[place] ^= mask
            (tmp_path / "a.npz").write_bytes(raw)
            try:
                read_arrays(tmp_path / "a.npz")
            except DataError as error:
                assert "a.npz" in str(error)  # noqa: PT017 - not each damage is noticed
                damaged += 1
    assert damaged > len(whole) // 3


def test_a_folder_is_all_its_files(tmp_path: Path) -> None:
    """In the order of their names, without hidden ones."""
    _npz(tmp_path / "b.npz", **_arrays(6, 3))
    _npz(tmp_path / "a.npz", **_arrays(0, 6))
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "folder").mkdir()
    batch = _whole(models.data(tmp_path))

    assert batch["labels"].tolist() == list(range(9))


def test_several_files_are_one_data_set(tmp_path: Path) -> None:
    """Named like the first, or as one likes."""
    paths = [_npz(tmp_path / f"{name}.npz", **_arrays()) for name in ("x", "y")]

    assert models.data(paths).name == "x"
    assert models.data(paths, name="training").name == "training"
    assert len(_whole(models.data(paths))["labels"]) == 12


def test_csv_files_give_rows(tmp_path: Path) -> None:
    """As dicts."""
    path = tmp_path / "clicks.csv"
    path.write_text("user,clicked\n1,0\n2,1\n")
    batch = _whole(models.data(path))

    assert batch == [{"user": "1", "clicked": "0"}, {"user": "2", "clicked": "1"}]
    assert models.count(batch) == 2


def test_record_files_give_bytes(tmp_path: Path) -> None:
    """Whatever their suffix is."""
    with edl.records.Writer(tmp_path / "some.data") as writer:
        writer.write(b"a")
        writer.write(b"b")

    assert _whole(models.data(tmp_path / "some.data")) == [b"a", b"b"]


def test_tuples_are_counted_by_their_arrays() -> None:
    """As `edl.from_arrays` makes them."""
    assert models.count((np.zeros((3, 2)), np.zeros(3))) == 3


@pytest.mark.parametrize(("name", "expected"), [("a b.npz", "a-b"), ("-.npz", "data")])
def test_names_are_made_of_what_may_be_in_names(tmp_path: Path, name: str, expected: str) -> None:
    """Other characters become a dash."""
    assert models.data(_npz(tmp_path / name, **_arrays())).name == expected


def test_data_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With what could be given."""
    with pytest.raises(edl.DataError, match=r"none.npz does not exist: name a .npz"):
        models.data(tmp_path / "none.npz")
    with pytest.raises(edl.DataError, match=r"holds no files"):
        models.data(tmp_path)
    with pytest.raises(edl.DataError, match=r"no data files given"):
        models.data([])


def test_files_of_two_kinds_are_no_data_set(tmp_path: Path) -> None:
    """Both are named."""
    _npz(tmp_path / "a.npz", **_arrays())
    (tmp_path / "b.csv").write_text("x\n1\n")
    with pytest.raises(edl.DataError, match=r"a.npz and .*b.csv are of different kinds"):
        models.data(tmp_path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    """Of whatever kind they are."""
    path = tmp_path / "notes.txt"
    path.write_text("nothing")
    with pytest.raises(edl.DataError, match=r"notes.txt is not a record file.*; name a .npz"):
        models.data(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "holds no arrays"),
        ({"x": np.zeros(3), "size": np.array(3)}, "'size' is a single number"),
        ({"x": np.zeros(3), "y": np.zeros(4)}, r"different lengths \(x 3, y 4\)"),
        ({"x": np.zeros((0, 2))}, "holds no records"),
        ({"x": np.array([{}, {}])}, "cannot read .*: ValueError"),
    ],
)
def test_arrays_that_are_no_records_are_refused(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    """One row must be one record; what only Python can load is not loaded."""
    path = tmp_path / "a.npz"
    if arrays:
        np.savez(path, allow_pickle=True, **arrays)
    else:
        with zipfile.ZipFile(path, "w") as empty:
            empty.writestr("readme.txt", "")
    with pytest.raises(edl.DataError, match=message):
        models.data(path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """No zip file, or one that was cut short."""
    path = tmp_path / "a.npz"
    path.write_bytes(b"nothing")
    with pytest.raises(edl.DataError, match=r"cannot read .*a.npz: BadZipFile"):
        models.data(path)
    _npz(path, **_arrays())
    raw = bytearray(path.read_bytes())
    size = struct.calcsize("<26xHH")
    raw[size + 10 : size + 60] = b"\0" * 50
    path.write_bytes(raw)
    with pytest.raises(edl.DataError, match=r"cannot read .*a.npz: (ValueError|BadZipFile)"):
        models.data(path)


def test_files_must_hold_the_same_arrays(tmp_path: Path) -> None:
    """Of the same names, types and shapes of a record; both files are named."""
    _npz(tmp_path / "a.npz", x=np.zeros((3, 2)))
    _npz(tmp_path / "b.npz", x=np.zeros((3, 4)))
    with pytest.raises(edl.DataError, match=r"b.npz holds .*\[4\].* but a.npz holds .*\[2\]"):
        models.data(tmp_path)


def test_files_need_names_of_their_own(tmp_path: Path) -> None:
    """The master knows them by these."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    paths = [_npz(tmp_path / name / "a.npz", **_arrays()) for name in ("one", "two")]
    with pytest.raises(edl.DataError, match=r"two files are named 'a.npz'"):
        models.data(paths)


def test_records_that_are_not_there_are_named(tmp_path: Path) -> None:
    """A file that only the master knows, or one that was longer elsewhere."""
    source = models.data(_npz(tmp_path / "a.npz", **_arrays())).source
    with pytest.raises(edl.DataError, match=r"a file 'b.npz' that this trainer lacks"):
        source.read("b.npz", 0, 1)
    with pytest.raises(edl.RecordError, match=r"record 6: a.npz has 6 records"):
        source.read("a.npz", 5, 7)
