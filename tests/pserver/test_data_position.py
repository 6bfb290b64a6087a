"""Which records the parameters contain."""

import orjson
import pytest

from pserver import shard
from pserver.shard import DataPosition


def _restored(position: DataPosition) -> DataPosition:
    """The position after a checkpoint, which is JSON."""
    restored = DataPosition()
    restored.load(orjson.loads(orjson.dumps(position.dump())))
    return restored


def test_parameters_that_were_never_trained_contain_nothing() -> None:
    """That is known: trainers begin at the first record."""
    assert DataPosition().dump() == {"known": True, "ledger": None, "remaining": {}}


def test_the_newest_push_of_a_task_counts() -> None:
    """Pushes of one task follow each other; other tasks stay as they are."""
    position = DataPosition()
    position.push({"a": 30, "b": 7})
    position.push({"a": 10})

    assert position.is_known
    assert position.remaining == {"a": 10, "b": 7}


def test_a_later_position_contains_the_tasks_that_it_has_as_done() -> None:
    """Those that were pushed meanwhile stay, and tasks of which no push is known do no harm."""
    position = DataPosition()
    position.push({"a": 0, "b": 7})
    position.renew({"epoch": 1}, ["a", "never pushed"])

    assert position.dump() == {"known": True, "ledger": {"epoch": 1}, "remaining": {"b": 7}}


def test_a_checkpoint_restores_it() -> None:
    """Ledger, tasks, and whether it is known at all."""
    position = DataPosition()
    position.push({"a": 3})
    position.renew({"epoch": 2}, [])
    unknown = DataPosition()
    unknown.load(None)

    assert _restored(position).dump() == position.dump()
    assert _restored(unknown).is_known is False


def test_a_checkpoint_of_an_earlier_version_has_no_position() -> None:
    """It becomes known with the next position of the ledger."""
    position = DataPosition()
    position.load(None)
    before = position.is_known
    position.renew({"epoch": 1}, [])

    assert (before, position.is_known) == (False, True)


def test_the_list_of_tasks_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its limit finished tasks go, then the oldest; the position is unknown from then on."""
    monkeypatch.setattr(shard, "MAX_TASKS", 3)
    position = DataPosition()
    position.push({"finished": 0, "a": 1, "b": 2})
    within = (position.is_known, dict(position.remaining))
    position.push({"c": 3})
    without_finished = (position.is_known, dict(position.remaining))
    position.push({"d": 4})

    assert within == (True, {"finished": 0, "a": 1, "b": 2})
    assert without_finished == (False, {"a": 1, "b": 2, "c": 3})
    assert position.remaining == {"b": 2, "c": 3, "d": 4}
