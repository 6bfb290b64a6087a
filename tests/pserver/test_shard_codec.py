"""Checkpoints, restored by as many servers or another number: every number is where it was."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from edl.servers import layout
from edl_protocol.frames import Frame
from edl_protocol.pserver import Model, Piece
from hypothesis import given
from hypothesis import strategies as st

from pserver import frames, pages, shard_codec
from pserver.errors import FullError, ShardError
from pserver.memory import Memory, Views
from pserver.shard import Shard
from pserver.shard_codec import ShardPlace
from tests.pserver.builders import ALL, make_shard, model, push, rows
from tests.support.strategies import CALM

SHAPES = st.dictionaries(
    st.sampled_from("abcdef"), st.lists(st.integers(0, 7), max_size=2), min_size=1
)
KINDS = st.sampled_from(["sgd", "momentum", "adagrad", "adam"])
SERVERS = st.integers(1, 5)
PUSHES = st.lists(
    st.tuples(st.lists(st.integers(-9, 40), unique=True), st.integers(1, 9)), max_size=4
)


def _split(model_: Model, servers: int) -> list[list[Piece]]:
    sizes = {name: model_.size(name) for name in model_.parameters}
    return layout.partition(sizes, servers)


def _begin(model_: Model, servers: int) -> list[Shard]:
    """All servers, from numbers that are all different."""
    begun, at = [], 0
    for pieces in _split(model_, servers):
        size = sum(piece.size for piece in pieces)
        memory = Memory()
        values = np.arange(at, at + size, dtype=np.float32)
        begun.append(Shard(model_, pieces, values, memory, Views(memory)))
        at += size
    return begun


def _train(shards: list[Shard], pushes: list[tuple[list[int], int]]) -> None:
    for number, (ids, seed) in enumerate(pushes, 1):
        chance = np.random.default_rng(seed)
        for index, shard in enumerate(shards):
            own_ids = np.array([i for i in ids if i % len(shards) == index], np.int64)
            gradient = chance.normal(size=(len(own_ids), 2)).astype(np.float32)
            dense = chance.normal(size=len(shard.vector.values)).astype(np.float32)
            shard.push(push(number, dense=dense, sparse={"words": (own_ids, gradient)}))


def _file(shard: Shard, index: int, of: int) -> Frame:
    view = shard.views.open()
    meta, arrays = shard_codec.snapshot(
        shard, {"job": "j", "index": index, "of": of, "generation": 1, "version": 1}
    )
    frame = frames.decode(b"".join(frames.encode(meta, arrays)))
    shard.views.close(view)
    return frame


def _whole(shards: list[Shard], ids: list[int]) -> Mapping[str, Any]:
    """Values and slots by name, however they are shared out."""
    values_by_name: dict[str, Any] = {}
    first = shards[0]
    for name in first.model.parameters:
        values_by_name[name] = np.full((1 + first.optimizer.slots, first.model.size(name)), np.nan)
    for shard in shards:
        at = 0
        for piece in shard.pieces:
            place = slice(at, at + piece.size)
            values_by_name[piece.name][0, piece.start : piece.stop] = shard.vector.values[place]
            values_by_name[piece.name][1:, piece.start : piece.stop] = shard.vector.slots[:, place]
            at += piece.size
    for index, shard in enumerate(shards):
        own_ids = np.array([i for i in ids if i % len(shards) == index], np.int64)
        values = shard.tables["words"].lookup(own_ids)
        values_by_name |= {f"row {i}": row for i, row in zip(own_ids.tolist(), values, strict=True)}
    return values_by_name


@CALM
@given(SHAPES, KINDS, SERVERS, SERVERS, PUSHES)
def test_another_number_of_servers_holds_the_same(
    shapes: dict[str, list[int]],
    kind: str,
    before: int,
    after: int,
    pushes: list[tuple[list[int], int]],
) -> None:
    """Values, slots, rows, how far it was, and who has pushed what; and it trains on alike."""
    model_ = model(parameters=shapes, optimizer={"kind": kind, "learning_rate": 0.1})
    olds = _begin(model_, before)
    _train(olds, pushes)
    files = [_file(shard, index, before) for index, shard in enumerate(olds)]
    news = []
    for index, pieces in enumerate(_split(model_, after)):
        needed = [files[index]] if before == after else files
        news.append(
            shard_codec.assemble(model_, pieces, ShardPlace(index, after), needed, Memory())
        )
    ids = list(range(-9, 41))

    was, now = _whole(olds, ids), _whole(news, ids)
    assert all(np.array_equal(now[name], values) for name, values in was.items())
    assert {shard.counts for shard in news} == {olds[0].counts}
    assert all(shard.applied == olds[0].applied for shard in news)
    assert sum(shard.tables["words"].size for shard in news) == sum(
        shard.tables["words"].size for shard in olds
    )
    for shards in (olds, news):
        shard_ = shards[3 % len(shards)]
        shard_.push(push(9, dense=None, sparse={"words": rows(3)}))
    assert np.allclose(_whole(news, [3])["row 3"], _whole(olds, [3])["row 3"])


def test_a_table_of_many_pages_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its last page is not full, and while the shard goes on."""
    monkeypatch.setattr(pages, "PAGE_BYTES", 64)
    monkeypatch.setattr(shard_codec, "_ROWS_AT_ONCE", 7)
    shard = make_shard(model(optimizer={"kind": "adam", "learning_rate": 0.1}))
    ids = np.arange(0, 100, 3)
    shard.push(push(1, sparse={"words": (ids, np.ones((len(ids), 2), np.float32))}))
    was = shard.tables["words"].lookup(ids)
    view = shard.views.open()
    meta, arrays = shard_codec.snapshot(shard, {"job": "j"})
    shard.push(push(2, sparse={"words": (ids, np.ones((len(ids), 2), np.float32))}))
    file = frames.decode(b"".join(frames.encode(meta, arrays)))
    shard.views.close(view)
    back = shard_codec.assemble(shard.model, ALL, ShardPlace(0, 1), [file], Memory())

    assert np.array_equal(back.tables["words"].lookup(ids), was)
    assert back.version == 1


def test_files_that_lack_numbers_are_refused() -> None:
    """Of a layout that another version of the SDK made, for instance."""
    shard = make_shard()
    shard.pieces = [Piece(name="b", start=0, stop=2)]
    with pytest.raises(ShardError, match="6 elements of dense parameters are missing"):
        shard_codec.assemble(model(), ALL, ShardPlace(0, 1), [_file(shard, 0, 1)], Memory())


def _damaged(name: str) -> Frame:
    """A file whose checksum is right and whose contents are not."""
    shard = make_shard()
    shard.push(push(1, sparse={"words": rows(1, 2)}))
    meta, arrays = _file(shard, 0, 1)
    changed = dict(arrays)
    if name == "short":
        changed["ids.0"] = changed["ids.0"][:1]
    elif name == "missing":
        del changed["values.0"]
    elif name == "counts":
        meta["counts"] = None
    return Frame(meta, changed)


@pytest.mark.parametrize("name", ["short", "missing", "counts"])
def test_contents_that_do_not_fit_together_are_refused(name: str) -> None:
    """One line, not a traceback."""
    with pytest.raises(ShardError):
        shard_codec.assemble(model(), ALL, ShardPlace(0, 1), [_damaged(name)], Memory())


def test_what_does_not_fit_into_memory_is_said() -> None:
    """A server with less memory than the one before."""
    shard = make_shard()
    with pytest.raises(FullError):
        shard_codec.assemble(model(), ALL, ShardPlace(0, 1), [_file(shard, 0, 1)], Memory(1000))


@pytest.mark.parametrize(
    "meta", [{"format": 2, "model": {}}, {"format": 1}, {"format": 1, "model": 3}]
)
def test_files_of_another_kind_are_refused(meta: dict[str, Any]) -> None:
    """By their format, or because there is no model in them."""
    with pytest.raises(ShardError, match=r"format 2|no model"):
        shard_codec.model_of(Frame(meta, {}))
