"""Where rows lie: the index of ids, pages, and copies on write for what views hold."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pserver import hash_slots, pages, row_index
from pserver.errors import FullError
from pserver.hash_slots import HashSlots
from pserver.memory import Block, Memory, Views, zeros
from pserver.pages import Pages
from pserver.row_index import RowIndex
from pserver.table import initial_rows
from tests.support.strategies import CALM

IDS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), unique=True, max_size=200)


@CALM
@given(st.lists(IDS, max_size=5), IDS)
def test_an_index_finds_what_was_added_and_nothing_else(
    added: list[list[int]], queried: list[int]
) -> None:
    """Rows are numbered in the order in which ids came."""
    memory = Memory()
    index, expected_rows = RowIndex(memory), dict[int, int]()
    for ids in added:
        fresh = [id_ for id_ in ids if id_ not in expected_rows]
        rows = index.add(np.array(fresh, np.int64))
        expected_rows |= dict(zip(fresh, rows.tolist(), strict=True))

    assert list(expected_rows.values()) == list(range(len(expected_rows)))
    assert index.size == len(expected_rows)
    queries = [*expected_rows, *queried]
    rows_found = index.find(np.array(queries, np.int64)).tolist()
    assert rows_found == [expected_rows.get(id_, -1) for id_ in queries]
    assert memory.used == index.nbytes
    index.drop()
    assert memory.used == 0


def test_an_index_that_has_no_room_stays_as_it_was() -> None:
    """The caller may retry later."""
    memory = Memory(2000)
    index = RowIndex(memory)
    index.add(np.arange(10))
    with pytest.raises(FullError):
        index.add(np.arange(10, 1000))

    assert (index.size, memory.used) == (10, index.nbytes)
    assert index.find(np.arange(11)).tolist() == [*range(10), -1]


@CALM
@given(st.randoms(use_true_random=False), st.sampled_from([1, 3, 64]))
def test_an_index_is_right_while_its_entries_are_moved(chance: Random, span: int) -> None:
    """Ids come and go in any order; those of one `span` probe the same places."""
    memory, size = Memory(), 0
    index, rows = RowIndex(memory), dict[int, int]()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(row_index, "_MOVED_A_PUSH", 2)
        monkeypatch.setattr(hash_slots, "hash_ids", lambda ids: (ids // span).view(np.uint64))
        monkeypatch.setattr(row_index, "hash_ids", lambda ids: (ids // span).view(np.uint64))
        for _ in range(20):
            fresh = sorted(set(chance.choices(range(800), k=chance.choice([3, 40]))) - set(rows))
            rows |= dict(zip(fresh, index.add(np.array(fresh, np.int64)).tolist(), strict=True))
            index.advance()
            gone = chance.sample(sorted(rows), chance.choice([0, min(30, len(rows))]))
            size = len(rows) - len(gone)
            by_row = sorted((row, id_) for id_, row in rows.items())
            moved = [id_ for row, id_ in by_row if row >= size and id_ not in gone]
            gone = sorted(gone, key=lambda id_: (rows[id_] >= size, id_))
            index.remove(np.array(gone, np.int64), np.array(moved, np.int64))
            rows |= dict(zip(moved, [rows[id_] for id_ in gone], strict=False))
            rows = {id_: row for id_, row in rows.items() if id_ not in gone}
            expected = [rows.get(id_, -1) for id_ in range(800)]
            assert index.find(np.arange(800)).tolist() == expected

    assert sorted(rows.values()) == list(range(size))
    assert (index.size, memory.used) == (size, index.nbytes)


def test_what_an_index_grew_from_is_gone_before_it_is_full() -> None:
    """New ids alone move its entries: with lookups only, both stay."""
    memory = Memory()
    index = RowIndex(memory)
    for start in range(0, 400_000, 5_000):
        index.add(np.arange(start, start + 5_000))

    assert memory.used == index.nbytes == (1 << 20) * hash_slots.BYTES_A_PLACE


def test_a_large_index_returns_the_memory_of_what_was_moved() -> None:
    """The places that were taken out read as zeros, which the system does not store."""
    index = HashSlots(1 << 17)
    ids = np.arange(1 << 15, dtype=np.int64)
    index.insert(ids, hash_slots.hash_ids(ids), ids)
    entries = index.take(1 << 16)

    assert entries is not None
    assert not index.holds(hash_slots.hash_ids(entries.ids)).any()
    others = np.setdiff1d(ids, entries.ids)
    assert index.find(others, hash_slots.hash_ids(others)).rows.tolist() == others.tolist()
    assert index.take(1 << 17) is not None
    assert index.take(1) is None


@CALM
@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(1, 40), st.integers())
def test_a_row_starts_the_same_on_every_server(row: int, dim: int, seed: int) -> None:
    """A function of seed and id; others beside it do not matter."""
    seed %= 1 << 63
    alone = initial_rows(np.array([row]), dim, 0.5, seed)
    among = initial_rows(np.array([7, row, 9]), dim, 0.5, seed)

    assert np.array_equal(alone[0], among[1])
    assert (np.abs(alone) <= 0.5).all()


def test_rows_begin_evenly_spread() -> None:
    """Mean and deviation of a uniform distribution; no column is like another, nor like a row."""
    rows = initial_rows(np.arange(10_000), 8, 1.0, 3)

    assert abs(rows.mean()) < 0.01
    assert abs(rows.std() - 3**-0.5) < 0.01
    assert np.abs(np.corrcoef(rows.T) - np.eye(8)).max() < 0.05
    assert np.abs(np.corrcoef(rows[:8]) - np.eye(8)).max() < 0.99
    assert not np.array_equal(rows, initial_rows(np.arange(10_000), 8, 1.0, 4))
    assert not initial_rows(np.arange(3), 2, 0.0, 1).any()


def test_a_view_holds_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is written later; and its bytes are counted until it closes."""
    monkeypatch.setattr(pages, "PAGE_BYTES", 64)
    memory = Memory()
    views = Views(memory)
    pages_ = Pages(2, views)
    pages_.reserve(20)
    rows = np.arange(20)
    pages_.write(rows, np.ones((20, 2), np.float32))
    begun = memory.used
    view, arrays = views.open(), pages_.arrays
    pages_.make_writable(rows[:3])
    pages_.write(rows[:3], np.zeros((3, 2), np.float32))

    assert pages_.read(rows, arrays).min() == 1
    assert pages_.read(rows).sum() == 34
    assert memory.used > begun
    assert views.held_bytes == memory.used - begun
    views.close(view)
    views.close(view)
    assert memory.used == begun
    pages_.drop()
    assert memory.used == 0


def test_views_share_what_both_hold() -> None:
    """An array is counted until the last of them closes."""
    memory = Memory()
    views = Views(memory)
    block = zeros((4,), views)
    first = views.open()
    second = views.open()
    block.make_writable()
    assert memory.used == 32
    views.close(second)
    assert memory.used == 32
    third = views.open()
    block.make_writable()
    assert memory.used == 48
    views.close(third)
    assert memory.used == 32
    views.close(first)
    assert memory.used == 16
    views.open()
    block.drop()
    assert memory.used == 16
    assert views.held_bytes == 16


@CALM
@given(
    st.lists(st.sampled_from(["open", "close", "write"]), max_size=40),
    st.randoms(use_true_random=False),
)
def test_views_see_what_they_saw_in_any_order(acts: list[str], chance: Random) -> None:
    """And when all are closed, nothing is counted but the block."""
    memory = Memory()
    views = Views(memory)
    block, number = Block(np.zeros(3, np.float32), views), 0
    views_held: dict[int, tuple[np.ndarray[tuple[int, ...], np.dtype[np.float32]], int]] = {}
    for act in acts:
        if act == "open":
            views_held[views.open()] = (block.array, number)
        elif act == "write":
            number += 1
            block.make_writable()
            block.array[:] = number
        elif views_held:
            view = chance.choice(list(views_held))
            views.close(view)
            del views_held[view]
        assert all((array == value).all() for array, value in views_held.values())
        distinct = {id(array): array.nbytes for array, _ in views_held.values()} | {
            id(block.array): 12
        }
        assert memory.used == sum(distinct.values())


def test_pages_without_room_are_not_made() -> None:
    """What was there stays."""
    views = Views(Memory(pages.PAGE_BYTES))
    pages_ = Pages(4, views)
    pages_.reserve(10)
    with pytest.raises(FullError, match="more than this server may use"):
        pages_.reserve(1 << 20)

    assert pages_.nbytes == pages.PAGE_BYTES


@CALM
@given(st.integers(1, 3000))
def test_a_page_holds_a_power_of_two_of_rows(width: int) -> None:
    """At least one."""
    rows = pages.rows_a_page(width)

    assert rows & (rows - 1) == 0
    assert rows >= 1
    assert rows * width * 4 <= max(pages.PAGE_BYTES, width * 4)
