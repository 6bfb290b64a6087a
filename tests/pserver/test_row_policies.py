"""Admission and eviction of rows: who gets a row, who loses it, and that all of it is counted."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from edl_protocol.pserver import Model
from hypothesis import given
from hypothesis import strategies as st

from pserver import pages, row_policies, shard_codec
from pserver.errors import BusyError
from pserver.memory import Memory
from pserver.model import check_same
from pserver.shard import Shard
from pserver.shard_codec import ShardPlace
from runtime.call_checks import RefusedError
from tests.pserver.builders import ALL, make_shard, model, push, rows
from tests.pserver.test_shard_codec import _file
from tests.support.strategies import CALM

Json = dict[str, Any]


def _model(**policy: Any) -> Model:
    return model(tables={"words": {"dim": 2, "init": 0.5, "seed": 7, **policy}})


def _push(shard: Shard, *ids: int) -> None:
    number = shard.version + 1
    shard.push(push(number, version=number - 1, dense=None, sparse={"words": rows(*ids)}))


def _moved(shard: Shard, *ids: int) -> list[float]:
    """How often each row was updated since it was made: each update subtracts one."""
    table, wanted = shard.tables["words"], np.array(ids, np.int64)
    fresh = make_shard().tables["words"].lookup(wanted)
    return [round(float(value), 3) for value in (fresh - table.lookup(wanted))[:, 0]]


def test_a_row_is_made_at_the_push_that_admits_it() -> None:
    """Gradients before that are dropped and counted; others in the same push are applied."""
    shard = make_shard(_model(admit_after=3))
    moved = []
    for others in ((1,), (1, 2), (1, 2), (1, 2, 3)):
        _push(shard, *others)
        moved.append(_moved(shard, 1, 2, 3))

    assert moved == [[0, 0, 0], [0, 0, 0], [1, 0, 0], [2, 1, 0]]
    assert shard.tables["words"].size == 2
    assert shard.tables["words"].counts.waiting == 2 + 2 + 1


def test_a_push_that_is_retried_counts_once_for_admission() -> None:
    """Nothing of it was applied."""
    shard = make_shard(_model(admit_after=2), max_bytes=2 * pages.PAGE_BYTES + (4 << 20) + 20_000)
    _push(shard, 1)
    _push(shard, 1)
    view = shard.views.open()
    for _ in range(3):
        with pytest.raises(BusyError):
            _push(shard, 1, 7)
    shard.views.close(view)
    moved = []
    for _ in range(2):
        _push(shard, 1, 7)
        moved.append(_moved(shard, 7))

    assert moved == [[0], [1]]


def test_a_candidate_may_lose_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """So ids that occur once cost no memory; it is counted again from then on."""
    monkeypatch.setattr(row_policies, "_PLACES", 1)
    shard = make_shard(_model(admit_after=2))
    for id_ in (1, 2, 1, 1):
        _push(shard, id_)

    assert _moved(shard, 1, 2) == [1, 0]


def test_rows_that_are_too_old_are_evicted() -> None:
    """They begin anew when they come again; an update makes a row young."""
    shard = make_shard(_model(evict_after=3))
    for id_ in (1, 2, 1, 3, 4):
        _push(shard, id_)

    assert _moved(shard, 1, 2, 3, 4) == [2, 0, 1, 1]
    assert shard.tables["words"].counts.evicted == 1
    _push(shard, 2)
    assert _moved(shard, 2) == [1]


@pytest.mark.parametrize(("evict", "moved"), [("lru", [0, 1, 1]), ("lfu", [3, 0, 1])])
def test_rows_beyond_the_limit_make_room(evict: str, moved: list[float]) -> None:
    """The one that was updated longest ago, or least often."""
    shard = make_shard(_model(max_rows=2, evict=evict))
    for id_ in (1, 1, 1, 2, 3):
        _push(shard, id_)

    assert _moved(shard, 1, 2, 3) == moved
    assert (shard.tables["words"].size, shard.tables["words"].counts.evicted) == (2, 1)


def test_a_limit_without_eviction_refuses_new_rows() -> None:
    """Those that exist are trained on."""
    shard = make_shard(_model(max_rows=2))
    _push(shard, 1, 2, 3)
    _push(shard, 1, 4)

    assert _moved(shard, 1, 2, 3, 4) == [2, 1, 0, 0]
    assert shard.refused_rows == 2


def test_a_limit_is_shared_by_the_servers() -> None:
    """It is that of the whole table."""
    memory = Memory()
    two = Shard(
        _model(max_rows=3), ALL, np.zeros(8, np.float32), memory, make_shard().views, servers=2
    )
    _push(two, 0, 2, 4, 6)

    assert two.tables["words"].size == 2


def test_a_full_server_evicts_where_the_table_says_so() -> None:
    """Rows of the push itself stay; the table keeps as many rows as fit."""
    shard = make_shard(_model(evict="lru"), max_bytes=10 * pages.PAGE_BYTES)
    _push(shard, *range(60_000))
    _push(shard, 0, *range(100_000, 110_000))

    table = shard.tables["words"]
    assert (table.size, table.counts.evicted) == (65_536, 4_464)
    assert _moved(shard, 0, 100_000, 109_999) == [2, 1, 1]
    assert table.counts.refused == 0


def test_nothing_is_evicted_while_a_view_is_open() -> None:
    """A pinned version finds its rows by their numbers."""
    shard = make_shard(_model(max_rows=1, evict="lru"))
    _push(shard, 1)
    view, seen = shard.views.open(), shard.tables["words"].view()
    _push(shard, 2)
    _push(shard, 3)
    assert shard.tables["words"].size == 3
    assert shard.tables["words"].lookup(np.array([1]), seen) is not None
    shard.views.close(view)
    _push(shard, 3)

    assert _moved(shard, 1, 2, 3) == [0, 0, 2]


@CALM
@given(
    st.randoms(use_true_random=False),
    st.sampled_from(
        [{"evict_after": 3}, {"max_rows": 9, "evict": "lru"}, {"max_rows": 9, "evict": "lfu"}]
    ),
    st.sampled_from(["sgd", "adam"]),
)
def test_every_row_is_whole_or_as_if_it_had_never_been(
    chance: Random, policy: Json, kind: str
) -> None:
    """Rows that come and go do not mix; made rows are stored or counted as evicted."""
    spec = {"kind": kind, "learning_rate": 1.0}
    known: dict[int, float] = {}
    made = 0
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(pages, "PAGE_BYTES", 32)
        monkeypatch.setattr(row_policies, "_MIN_ROWS", 7)
        base = _model(**policy)
        shard = make_shard(replace(base, optimizer=spec))
        for _ in range(25):
            ids = chance.sample(range(40), chance.randint(1, 12))
            stored = {id_ for id_ in known if known[id_]}
            _push(shard, *ids)
            made += len(set(ids) - stored)
            moved = _moved(shard, *range(40))
            for id_ in range(40):
                expected = known.get(id_, 0.0) + (1.0 if id_ in ids else 0.0)
                assert moved[id_] == 0 or abs(moved[id_] - expected) < 0.01
                known[id_] = round(moved[id_])

    table = shard.tables["words"]
    assert table.size == sum(1 for value in known.values() if value)
    assert made == table.size + table.counts.evicted


@pytest.mark.parametrize("after", [1, 2, 3])
def test_policies_go_on_from_a_checkpoint(after: int) -> None:
    """Ages, candidates and counts are in it, for any number of servers."""
    shard = make_shard(_model(evict_after=4, admit_after=2))
    for ids in ((1, 2), (1, 2), (1, 3), (1, 3), (1, 5)):
        _push(shard, *ids)
    file = _file(shard, 0, 1)
    servers = [
        shard_codec.assemble(shard.model, ALL, ShardPlace(index, after), [file], Memory())
        for index in range(after)
    ]
    for server in servers:
        index = servers.index(server)
        _push(server, *(id_ for id_ in (1, 5) if id_ % after == index))

    tables = [server.tables["words"] for server in servers]
    assert sum(table.size for table in tables) == 3
    assert sum(table.counts.evicted for table in tables) == 1
    assert sum(table.counts.waiting for table in tables) == 4
    assert _moved(servers[5 % after], 5) == [1]
    assert _moved(servers[2 % after], 2) == [0]


def test_a_checkpoint_from_before_policies_is_read() -> None:
    """Its rows count as updated at its version."""
    shard = make_shard()
    _push(shard, 1, 2)
    file = _file(shard, 0, 1)
    del file.meta["row_counts"]
    back = shard_codec.assemble(_model(evict_after=2), ALL, ShardPlace(0, 1), [file], Memory())
    for _ in range(3):
        _push(back, 1)

    assert _moved(back, 1, 2) == [4, 0]


def test_pages_of_rows_miss_none_while_rows_are_evicted() -> None:
    """One may come twice: the last rows take the places of those that go."""
    shard = make_shard(_model(max_rows=6, evict="lru"))
    table = shard.tables["words"]
    _push(shard, *range(6))
    read = table.page(6, 3)[0].tolist()
    _push(shard, 1, 2, 3, 4, 5)
    _push(shard, 9)
    read += table.page(3, 3)[0].tolist()

    assert {1, 2, 3, 4, 5} <= set(read)


def test_trainers_of_one_job_declare_the_same_policies() -> None:
    """A checkpoint of another policy fits nonetheless."""
    with pytest.raises(RefusedError, match="None at the servers and 5") as caught:
        check_same(_model(), _model(evict_after=5))

    assert caught.value.field == "tables.words.evict_after"
