"""Each epoch permutes the records, alike for all trainers, and differently from other epochs."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edl import records as record_files
from edl.data.batches import describe
from edl.errors import DataError, RecordError
from edl.master.protocol import Lease
from edl.model.data import data as open_data
from edl.sources import Dataset, from_arrays, from_csv, from_files, from_function, from_records
from edl.sources.leased_records import LeasedRecords
from edl.sources.record_order import RecordOrder
from edl_protocol.master import DatasetDescription

from master.commands import Describe
from master.fence import MAX_BYTES, pack
from master.ledger import Ledger
from master.protocol import dataset_shape

COUNT, TASK = 30, 4


def _lease(start: int, end: int, epoch: int = 0) -> Lease:
    return Lease(f"train/{epoch}/{start}", 1, "training", "train", epoch, start, end, None, 9.0)


def _read(data: Dataset, epoch: int = 0, task: int = TASK, **options: Any) -> list[Any]:
    """All records of an epoch, in the order of its tasks."""
    shape = describe(data, 3, epochs=2, **{"shuffle_seed": 5, "task_records": task, **options})
    reader, records = LeasedRecords(data.source, shape), []
    for start in range(0, COUNT, task):
        lease = _lease(start, min(start + task, COUNT), epoch)
        for at in range(lease.start, lease.end, 3):
            batch = reader.batch([reader.read(lease, at, min(at + 3, lease.end))])
            records += list(batch["x"] if isinstance(batch, dict) else batch)
    return [int(record["x"]) if isinstance(record, dict) else int(record) for record in records]


def _sources(folder: Path) -> dict[str, Dataset]:
    """The numbers below 30, by every kind of source; files hold 1, 20 and 9 of them."""
    tables, packed, arrays = [], [], folder / "arrays"
    arrays.mkdir()
    for name, numbers in (("a", range(1)), ("b", range(1, 21)), ("c", range(21, 30))):
        tables.append(folder / f"{name}.csv")
        tables[-1].write_text("x\n" + "".join(f"{number}\n" for number in numbers))
        packed.append(folder / f"{name}.rec")
        with record_files.Writer(packed[-1]) as writer:
            for number in numbers:
                writer.write(str(number).encode())
        np.savez(arrays / f"{name}.npz", x=np.array(numbers))
    single = folder / "single"
    single.mkdir()
    for number in range(COUNT):
        (single / f"{number:02}").write_text(str(number))
    return {
        "numpy": from_arrays("train", np.arange(COUNT)),
        "list": from_arrays("train", list(range(COUNT))),
        "function": from_function("train", lambda number: number, COUNT),
        "csv": from_csv("train", *tables),
        "records": from_records("train", *packed),
        "files": from_files("train", single.iterdir()),
        "npz": open_data(arrays, "train"),
    }


def test_all_sources_permute_records_alike(tmp_path: Path) -> None:
    """Each record once in each epoch, in an order that depends on seed and epoch only."""
    orders = {name: _read(data) for name, data in _sources(tmp_path).items()}
    expected = orders["list"]
    assert sorted(expected) == list(range(COUNT)) != expected
    assert orders == dict.fromkeys(orders, expected)
    data = from_arrays("train", np.arange(COUNT))
    assert sorted(_read(data, epoch=1)) == sorted(expected)
    assert len({tuple(_read(data, e, shuffle_seed=s)) for e in (0, 1) for s in (5, 6)}) == 4


def test_the_order_does_not_depend_on_the_tasks() -> None:
    """A task is a range of places, so its remainder and tasks of another size hold the same."""
    data = from_arrays("train", np.arange(COUNT))
    assert _read(data) == _read(data, task=7) == _read(data, task=COUNT)
    order = RecordOrder(100_000, 5, 0)
    big = LeasedRecords(
        from_function("train", int, 100_000).source,
        {"records": 100_000, "shuffle_seed": 5, "record_order": "x"},
    )
    whole = big.read(_lease(0, 100_000), 40_000, 40_100)
    assert whole == list(order.numbers(40_000, 40_100))
    assert big.read(_lease(40_050, 40_070), 40_060, 40_070) == whole[60:70]


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101, 4096, 4097])
def test_an_order_is_a_permutation(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any count, and the same with and without numpy."""
    order = RecordOrder(count, 7, 3)
    fast = [int(number) for number in order.numbers(0, count)]
    assert sorted(fast) == list(range(count))
    monkeypatch.setitem(sys.modules, "numpy", None)
    plain = RecordOrder(count, 7, 3)
    assert plain.numbers(0, count) == fast
    assert [plain.number_at(place) for place in range(count)] == fast


@pytest.mark.parametrize("count", [2**18, 2**18 + 1])
def test_parts_of_an_order_are_those_of_the_whole(count: int) -> None:
    """Whether it is computed at once and kept, or part by part where it is large."""
    order = RecordOrder(count, 7, 3)
    for start, end in ((0, 3), (100, 400), (count - 300, count)):
        numbers = [int(number) for number in order.numbers(start, end)]
        assert numbers == [order.number_at(place) for place in range(start, end)]


def test_orders_are_uniform() -> None:
    """Places and records are independent in each epoch, and so are neighbours and epochs.

    Chi-square of 16 x 16 cells (225 degrees of freedom): 225 +- 21.2; six deviations are allowed.
    """
    count, cells = 16_384, 16
    before = np.arange(count)
    for epoch in range(20):
        numbers = np.asarray(RecordOrder(count, 1, epoch).numbers(0, count))
        neighbours = (numbers[:-1], numbers[1:])
        for left, right in ((np.arange(count), numbers), neighbours, (before, numbers)):
            table = np.histogram2d(left, right, bins=cells, range=[[0, count]] * 2)[0]
            mean = len(left) / cells**2
            assert abs(((table - mean) ** 2 / mean).sum() - 225) < 6 * 21.2
        before = numbers


def test_what_cannot_be_read_at_random_keeps_its_tasks() -> None:
    """Streams, own sources without `pick`, no seed, and whoever asks for it."""

    class Own:
        def shape(self) -> dict[str, Any]:
            return {"records": COUNT}

        def read(self, file: str | None, start: int, end: int) -> list[int]:
            del file
            return list(range(start, end))

        def batch(self, blocks: Any) -> list[int]:
            return [number for block in blocks for number in block]

    stream = describe(from_function("s", int, None), 4, epochs=1, shuffle_seed=1, task_records=4)
    assert stream["stream"]
    assert "record_order" not in stream
    data = from_arrays("train", np.arange(COUNT))
    kept = list(range(COUNT))
    assert _read(Dataset("train", Own())) == kept
    assert _read(data, shuffle="tasks") == _read(data, shuffle_seed=None) == kept
    with pytest.raises(DataError, match="shuffle is 'rows': it must be one of records, tasks"):
        _read(data, shuffle="rows")


def test_trainers_with_other_files_have_another_description(tmp_path: Path) -> None:
    """So that the master refuses them: the same place would be another record."""
    for name in "ab":
        (tmp_path / name).write_text("x\n1\n2\n")

    def order(*names: str) -> Any:
        data = from_csv("train", *(tmp_path / name for name in names))
        return describe(data, 2, epochs=1, shuffle_seed=1, task_records=2)["record_order"]

    assert order("a", "b") != order("b", "a")
    assert order("a", "b") == order("a", "b")


def test_a_bad_record_is_named_by_file_and_by_its_number_of_all(tmp_path: Path) -> None:
    """The number is the same in each epoch, whatever task has the record."""
    for name, rows in (("a", "1\n2\n"), ("b", "3\nbad,4\n")):
        (tmp_path / f"{name}.csv").write_text("x\n" + rows)
    source: Any = from_csv("train", tmp_path / "a.csv", tmp_path / "b.csv").source
    with pytest.raises(RecordError, match=r"record 3: record 1 of b.csv: 2 cells") as caught:
        source.pick([0, 3])
    assert caught.value.record == 3


class Many:
    """Ten records in each of very many files, which it reads at random."""

    files = 100_000

    def shape(self) -> dict[str, Any]:
        """As in `Source`."""
        return {"files": [{"name": f"part-{i:06}", "records": 10_000} for i in range(self.files)]}

    def read(self, file: str | None, start: int, end: int) -> list[int]:
        """As in `Source`; never used."""
        raise AssertionError(file, start, end)

    def pick(self, numbers: Any) -> list[int]:
        """As in `RandomAccess`."""
        return list(numbers)

    def batch(self, blocks: Any) -> list[int]:
        """As in `Source`."""
        return [number for block in blocks for number in block]


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle_seed": 1},
        {"shuffle_seed": None},
        {"shuffle_seed": 1, "shuffle": "tasks"},
        {"shuffle_seed": None, "kind": "evaluation"},
    ],
    ids=["records", "kept", "tasks", "evaluation"],
)
def test_a_hundred_thousand_files_fit_a_snapshot_of_the_master(options: dict[str, Any]) -> None:
    """With 10^9 records: their names are a digest, whether they are permuted or not."""
    shape = describe(Dataset("train", Many()), 32, epochs=1, task_records=None, **options)

    ledger = Ledger("digits")
    ledger.execute(Describe("train", dataset_shape(DatasetDescription(**shape))))

    assert shape["records"] == 10**9
    assert len(json.dumps(shape)) < 300
    assert len(pack(ledger.dump())) < MAX_BYTES / 100


def test_records_of_many_files_are_read_in_order_where_no_seed_is_given() -> None:
    """Place p is record p; predictions go on by file, as their outputs do."""
    shape = describe(Dataset("train", Many()), 32, epochs=1, shuffle_seed=None, task_records=64)
    reader = LeasedRecords(Many(), shape)
    assert reader.read(_lease(128, 192), 150, 160) == list(range(150, 160))
    options: Any = {"epochs": 1, "shuffle_seed": None, "task_records": 64}
    assert "files" in describe(Dataset("train", Many()), 32, kind="prediction", **options)
