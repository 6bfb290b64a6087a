"""What pushes do to a shard: applied whole and once, or refused with a name."""

from typing import Any

import numpy as np
import pytest
from edl_protocol.pserver import Piece

from pserver import pages, shard
from pserver.errors import BusyError, FullError, NonFiniteError
from pserver.memory import Memory, Views
from pserver.shard import PushOutcome, Shard
from runtime.call_checks import RefusedError
from tests.pserver.builders import ALL, make_shard, model, push, rows


def test_a_push_is_applied_once() -> None:
    """The same number again changes nothing; the next one does, and so does another process."""
    shard_ = make_shard()
    outcomes = [
        shard_.push(push_)[0]
        for push_ in (
            push(1),
            push(1),
            push(2),
            push(1),
            push(1, process="q"),
            push(2, process="q"),
        )
    ]

    assert outcomes == ["applied", "repeated", "applied", "repeated", "applied", "applied"]
    assert shard_.vector.values.tolist() == [-4.0] * 8
    assert shard_.counts == (4, 40)


def test_a_number_may_be_left_out() -> None:
    """A batch that was skipped was never pushed."""
    shard_ = make_shard()
    shard_.push(push(5))

    assert shard_.push(push(3))[0] == PushOutcome.REPEATED
    assert shard_.push(push(6))[0] == PushOutcome.APPLIED


def test_only_the_newest_processes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has not pushed for longest is forgotten."""
    monkeypatch.setattr(shard, "MAX_PROCESSES", 2)
    shard_ = make_shard()
    for process in ("p", "q", "p", "r"):
        shard_.push(push(shard_.version + 1, process=process))

    assert dict(shard_.applied) == {"p": 3, "r": 4}


def test_a_push_that_is_too_stale_is_not_applied() -> None:
    """It may come again with newer parameters, under the same number."""
    shard_ = make_shard(model(rules={"max_staleness": 1}))
    shard_.push(push(1))
    shard_.push(push(2))

    assert shard_.push(push(3)) == (PushOutcome.STALE, 2)
    assert shard_.version == 2
    assert shard_.push(push(3, version=1)) == (PushOutcome.APPLIED, 1)


def test_the_staler_a_push_the_less_it_counts() -> None:
    """Where the job asks for that: the learning rate is divided by the staleness."""
    shard_ = make_shard(model(rules={"modulate": True}))
    moves = []
    for number, version in ((1, 0), (2, 1), (3, 1), (4, 1), (5, 0)):
        before = shard_.vector.values[0]
        shard_.push(push(number, version=version))
        moves.append(round(float(before - shard_.vector.values[0]), 3))

    assert moves == [1.0, 1.0, 1.0, 0.5, 0.25]


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_gradient_with_nan_or_infinity_is_refused_by_name(number: float) -> None:
    """Nothing of its push is applied."""
    shard_ = make_shard()
    bad = np.ones(8, np.float32)
    bad[6] = number
    with pytest.raises(NonFiniteError, match="'b'") as caught:
        shard_.push(push(dense=bad, sparse={"words": rows(1)}))
    with pytest.raises(NonFiniteError, match="'words'"):
        shard_.push(push(sparse={"words": rows(1, value=number)}))

    assert caught.value.field == "gradients.b"
    assert shard_.version == shard_.tables["words"].size == 0
    assert not shard_.vector.values.any()


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"dense": np.ones(7, np.float32)}, "dense", r"\[7\] numbers, this server holds \[8\]"),
        ({"sparse": {"letters": rows(1)}}, "table", "no table 'letters'; tables are: words"),
        ({"sparse": {"words": rows(1, 1)}}, "sparse.words", "occurs twice"),
        ({"sparse": {"words": rows(2, 1, 2)}}, "sparse.words", "occurs twice"),
        ({"sparse": {"words": rows(1, dim=3)}}, "sparse.words", r"\[1, 3\], should be \[1, 2\]"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], field: str, message: str) -> None:
    """422, and nothing is applied."""
    shard_ = make_shard()
    with pytest.raises(RefusedError, match=message) as caught:
        shard_.push(push(**changes))

    assert (caught.value.status, caught.value.field) == (422, field)
    assert shard_.version == 0


def test_rows_begin_where_their_ids_say_and_stay_where_they_were_pushed() -> None:
    """A row without updates takes no memory."""
    shard_ = make_shard()
    table = shard_.tables["words"]
    ids = np.array([5, -3, 5_000_000_000])
    begun = table.lookup(ids)
    assert table.size == 0
    shard_.push(push(dense=None, sparse={"words": rows(5_000_000_000, 5)}))
    after = table.lookup(ids)

    assert np.allclose(after - begun, [[-1, -1], [0, 0], [-1, -1]])
    assert table.size == 2
    assert not shard_.vector.values.any()
    assert table.nbytes > 0


@pytest.mark.parametrize("kind", ["adam", "adagrad", "momentum"])
def test_slots_of_rows_are_kept(kind: str) -> None:
    """A row that was pushed before moves differently from one that was not."""
    spec = {"kind": kind, "learning_rate": 0.1}
    if kind == "adagrad":
        spec["initial"] = 0.5
    shard_ = make_shard(model(optimizer=spec))
    table = shard_.tables["words"]
    shard_.push(push(1, sparse={"words": rows(1)}))
    before = table.lookup(np.array([1, 2]))
    shard_.push(push(2, sparse={"words": rows(1, 2, value=0.5)}))
    moved = table.lookup(np.array([1, 2])) - before

    assert not np.allclose(moved[0], moved[1])


def test_a_shard_at_its_memory_limit_refuses_rows_and_goes_on() -> None:
    """Those without room are counted, keep their initial values, and can be looked up."""
    shard_ = make_shard(max_bytes=2 * pages.PAGE_BYTES + 20_000)
    table = shard_.tables["words"]
    shard_.push(push(1, sparse={"words": rows(1)}))
    before = table.lookup(np.array([1, 199_999]))
    outcome = shard_.push(push(2, version=1, sparse={"words": rows(*range(200_000))}))
    after = table.lookup(np.array([1, 199_999]))

    assert outcome == (PushOutcome.APPLIED, 0)
    assert table.counts.refused == shard_.refused_rows == 200_000 - table.size > 0
    assert table.size > 1
    assert (after - before).tolist() == [[-1.0, -1.0], [0.0, 0.0]]


def test_a_push_is_retried_while_a_view_holds_memory() -> None:
    """Nothing of the push was applied, so it can be repeated."""
    shard_ = make_shard(max_bytes=2 * pages.PAGE_BYTES + 20_000)
    shard_.push(push(1, sparse={"words": rows(1)}))
    view = shard_.views.open()
    with pytest.raises(BusyError, match="hold memory"):
        shard_.push(push(2, sparse={"words": rows(1)}))
    assert shard_.version == 1
    shard_.views.close(view)
    shard_.push(push(2, sparse={"words": rows(1)}))

    assert shard_.version == 2


def test_all_memory_is_freed() -> None:
    """Bytes are counted exactly."""
    memory = Memory()
    views = Views(memory)
    shard_ = Shard(model(), ALL, np.zeros(8, np.float32), memory, views)
    shard_.push(push(1, sparse={"words": rows(1, 2, 3)}))
    view = shard_.views.open()
    shard_.push(push(2, sparse={"words": rows(1)}))
    shard_.views.close(view)
    shard_.drop()

    assert memory.used == 0


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([Piece(name="x", start=0, stop=8)], "no parameter 'x'"),
        ([Piece(name="w", start=0, stop=8)], r"'w' has 6 elements, not \[0, 8\)"),
        ([Piece(name="w", start=4, stop=2)], r"not \[4, 2\)"),
        ([Piece(name="w", start=0, stop=6)], r"dense has \[8\] numbers, its pieces have \[6\]"),
    ],
)
def test_pieces_must_be_of_the_model(pieces: list[Piece], message: str) -> None:
    """422."""
    memory = Memory()
    with pytest.raises(RefusedError, match=message):
        Shard(model(), pieces, np.zeros(8, np.float32), memory, Views(memory))


def test_a_shard_that_does_not_fit_is_not_made() -> None:
    """Slots count, too."""
    adam = model(optimizer={"kind": "adam", "learning_rate": 0.1}, tables={})
    with pytest.raises(FullError):
        make_shard(adam, max_bytes=80)

    assert make_shard(adam, max_bytes=96).version == 0
