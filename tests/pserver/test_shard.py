"""What pushes do to a shard: applied whole and once, or refused with a name."""

from typing import Any

import numpy as np
import pytest

from pserver import pages, shard
from pserver.errors import BusyError, FullError, NonFiniteError, RefusedError
from pserver.memory import Memory, Views
from pserver.model import Piece
from pserver.shard import Outcome, Shard
from tests.pserver.worlds import ALL, model, push, rows
from tests.pserver.worlds import shard as made


def test_a_push_is_applied_once() -> None:
    """The same number again changes nothing; the next one does, and so does another process."""
    found = made()
    outcomes = [
        found.push(one)[0]
        for one in (push(1), push(1), push(2), push(1), push(1, process="q"), push(2, process="q"))
    ]

    assert outcomes == ["applied", "repeated", "applied", "repeated", "applied", "applied"]
    assert found.vector.values.tolist() == [-4.0] * 8
    assert found.counts == (4, 40)


def test_a_number_may_be_left_out() -> None:
    """A batch that was skipped was never pushed."""
    found = made()
    found.push(push(5))

    assert found.push(push(3))[0] == Outcome.REPEATED
    assert found.push(push(6))[0] == Outcome.APPLIED


def test_only_the_newest_processes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has not pushed for longest is forgotten."""
    monkeypatch.setattr(shard, "MOST_PROCESSES", 2)
    found = made()
    for process in ("p", "q", "p", "r"):
        found.push(push(found.version + 1, process=process))

    assert dict(found.applied) == {"p": 3, "r": 4}


def test_a_push_that_is_too_stale_is_not_applied() -> None:
    """It may come again with newer parameters, under the same number."""
    found = made(model(rules={"max_staleness": 1}))
    found.push(push(1))
    found.push(push(2))

    assert found.push(push(3)) == (Outcome.STALE, 2)
    assert found.version == 2
    assert found.push(push(3, version=1)) == (Outcome.APPLIED, 1)


def test_the_staler_a_push_the_less_it_counts() -> None:
    """Where the job asks for that: the learning rate is divided by the staleness."""
    found = made(model(rules={"modulate": True}))
    moves = []
    for number, version in ((1, 0), (2, 1), (3, 1), (4, 1), (5, 0)):
        before = found.vector.values[0]
        found.push(push(number, version=version))
        moves.append(round(float(before - found.vector.values[0]), 3))

    assert moves == [1.0, 1.0, 1.0, 0.5, 0.25]


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_no_number_is_refused_by_name(number: float) -> None:
    """Nothing of its push is applied."""
    found = made()
    bad = np.ones(8, np.float32)
    bad[6] = number
    with pytest.raises(NonFiniteError, match="'b'") as caught:
        found.push(push(dense=bad, sparse={"words": rows(1)}))
    with pytest.raises(NonFiniteError, match="'words'"):
        found.push(push(sparse={"words": rows(1, value=number)}))

    assert caught.value.named == "gradients.b"
    assert found.version == found.tables["words"].size == 0
    assert not found.vector.values.any()


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"dense": np.ones(7, np.float32)}, "dense", r"\[7\] numbers, this server holds \[8\]"),
        ({"sparse": {"letters": rows(1)}}, "table", "no table 'letters'; tables are: words"),
        ({"sparse": {"words": rows(1, 1)}}, "sparse.words", "named twice"),
        ({"sparse": {"words": rows(2, 1, 2)}}, "sparse.words", "named twice"),
        ({"sparse": {"words": rows(1, dim=3)}}, "sparse.words", r"\[1, 3\], should be \[1, 2\]"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], field: str, said: str) -> None:
    """422, and nothing is applied."""
    found = made()
    with pytest.raises(RefusedError, match=said) as caught:
        found.push(push(**changes))

    assert (caught.value.status, caught.value.named) == (422, field)
    assert found.version == 0


def test_rows_begin_where_their_ids_say_and_stay_where_they_were_pushed() -> None:
    """A row that nobody has trained takes no room."""
    found = made()
    table = found.tables["words"]
    ids = np.array([5, -3, 5_000_000_000])
    begun = table.lookup(ids)
    assert table.size == 0
    found.push(push(dense=None, sparse={"words": rows(5_000_000_000, 5)}))
    after = table.lookup(ids)

    assert np.allclose(after - begun, [[-1, -1], [0, 0], [-1, -1]])
    assert table.size == 2
    assert not found.vector.values.any()
    assert table.nbytes > 0


@pytest.mark.parametrize("kind", ["adam", "adagrad", "momentum"])
def test_slots_of_rows_are_kept(kind: str) -> None:
    """A row that was pushed before moves differently from one that was not."""
    spec = {"kind": kind, "learning_rate": 0.1}
    if kind == "adagrad":
        spec["initial"] = 0.5
    found = made(model(optimizer=spec))
    table = found.tables["words"]
    found.push(push(1, sparse={"words": rows(1)}))
    before = table.lookup(np.array([1, 2]))
    found.push(push(2, sparse={"words": rows(1, 2, value=0.5)}))
    moved = table.lookup(np.array([1, 2])) - before

    assert not np.allclose(moved[0], moved[1])


def test_a_shard_without_room_for_rows_is_full() -> None:
    """It says how much is missing, and goes on with what it has."""
    found = made(most_bytes=pages.PAGE_BYTES + 20_000)
    found.push(push(1, sparse={"words": rows(1)}))
    with pytest.raises(FullError):
        found.push(push(2, sparse={"words": rows(*range(200_000))}))
    found.push(push(2, sparse={"words": rows(1)}))

    assert found.version == 2


def test_a_view_without_room_for_copies_is_waited_for() -> None:
    """Nothing of the push was applied: it comes again."""
    found = made(most_bytes=pages.PAGE_BYTES + 20_000)
    found.push(push(1, sparse={"words": rows(1)}))
    view = found.views.open()
    with pytest.raises(BusyError, match="holds memory"):
        found.push(push(2, sparse={"words": rows(1)}))
    assert found.version == 1
    found.views.close(view)
    found.push(push(2, sparse={"words": rows(1)}))

    assert found.version == 2


def test_everything_is_given_back() -> None:
    """Bytes are counted exactly."""
    memory = Memory()
    views = Views(memory)
    found = Shard(model(), ALL, np.zeros(8, np.float32), memory, views)
    found.push(push(1, sparse={"words": rows(1, 2, 3)}))
    view = found.views.open()
    found.push(push(2, sparse={"words": rows(1)}))
    found.views.close(view)
    found.drop()

    assert memory.used == 0


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([Piece(name="x", start=0, stop=8)], "no parameter 'x'"),
        ([Piece(name="w", start=0, stop=8)], r"'w' has 6 numbers, not \[0, 8\)"),
        ([Piece(name="w", start=4, stop=2)], r"not \[4, 2\)"),
        ([Piece(name="w", start=0, stop=6)], r"dense has \[8\] numbers, its pieces have \[6\]"),
    ],
)
def test_pieces_must_be_of_the_model(pieces: list[Piece], said: str) -> None:
    """422."""
    memory = Memory()
    with pytest.raises(RefusedError, match=said):
        Shard(model(), pieces, np.zeros(8, np.float32), memory, Views(memory))


def test_a_shard_that_does_not_fit_is_not_made() -> None:
    """Slots count, too."""
    adam = model(optimizer={"kind": "adam", "learning_rate": 0.1}, tables={})
    with pytest.raises(FullError):
        made(adam, most_bytes=80)

    assert made(adam, most_bytes=96).version == 0
