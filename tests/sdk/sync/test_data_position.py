"""Which records and steps a model has beyond a position of the master's ledger."""

from typing import Any

import pytest
from edl.master.protocol import Lease
from edl.sync.data_position import DataPosition
from edl.sync.plans import Span


def _span(task: int, start: int, count: int) -> Span:
    lease = Lease(
        f"train/0/{task}", 1, "training", "train", 0, 10 * task, 10 * task + 10, None, 0.0
    )
    return Span(lease, 10 * task + start, count)


def _answer(steps: int, *settled: str) -> dict[str, Any]:
    return {"position": {"steps": steps, "opened": 1}, "settled": list(settled)}


def _trained() -> DataPosition:
    """Three steps of eight records, of which the second crosses two tasks."""
    data = DataPosition()
    data.renew(_answer(5))
    data.train([_span(0, 0, 8)])
    data.train([_span(0, 8, 2), _span(1, 0, 6)])
    data.train([_span(1, 6, 4), _span(2, 0, 4)])
    return data


def test_a_model_that_is_restored_has_all_its_steps() -> None:
    """The ledger's position may be hundreds of steps old: training would go on for so many more."""
    restored = DataPosition()
    restored.load(_trained().dump())
    target = restored.target()

    assert target["position"] == {"steps": 8, "opened": 1}
    assert target["remaining"] == {"train/0/0": 0, "train/0/1": 0, "train/0/2": 6}


def test_steps_of_tasks_that_the_ledger_has_count_once() -> None:
    """A later position has those of tasks that are done; a step is one of the task it began in."""
    data = _trained()
    data.renew(_answer(7, "train/0/0"))

    assert data.target()["position"]["steps"] == 8
    assert data.tasks == ["train/0/1", "train/0/2"]


def test_a_position_of_an_earlier_release_has_no_steps_of_its_own() -> None:
    """Nor has the beginning, or one that a user has damaged."""
    data = DataPosition()
    data.load({"ledger": {"steps": 3}, "remaining": {"train/0/0": 2}})
    assert data.target()["position"] == {"steps": 3}
    data.load({"ledger": None, "remaining": {}, "steps": {"train/0/0": 2}})
    assert data.target() == {"position": None, "remaining": {}}
    data.load({"ledger": {"steps": "x"}, "remaining": {}})
    assert data.target()["position"] == {"steps": "x"}
    with pytest.raises(TypeError, match="not a position"):
        data.load({"ledger": None, "remaining": {}, "steps": [1]})
