"""A member's part in a round, step by step: what it says, asks for and computes, exactly."""

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from edl.errors import Refused, RoundOver
from edl.rendezvous import Round
from edl.sync import Micro, Result, Step
from edl.sync.course import Course
from edl.sync.options import Options
from edl.sync.shares import Plan
from edl.sync.turn import Turn
from edl.wire import Member

from tests.sdk.sync.leases import lease, plan
from tests.sdk.sync.test_reader import Numbers

NAMES = ("trainer-0", "trainer-1")
NOTHING = Plan("none", ())
ONE = lease(0, 64, epoch=2)


class Words:
    """A ring whose other members say what a test gives, and send nothing else."""

    def __init__(self, *others: bytes) -> None:
        self._others = others
        self.said: list[bytes] = []

    def broadcast(self, arrays: Any, meta: bytes, source: int) -> tuple[bytes, list[Any]]:
        """As in `Ring`, for its source."""
        assert source == 0
        return meta, list(arrays)

    def gather(self, word: bytes) -> list[bytes]:
        """As in `Ring`."""
        self.said.append(word)
        return [word, *self._others]

    def barrier(self) -> None:
        """As in `Ring`."""


class Noting:
    """A replica that notes what it is asked for."""

    size = 3

    def __init__(self) -> None:
        self.parts: list[tuple[list[int], float, Micro]] = []
        self.scales: list[float] = []

    def backward(self, records: Any, weight: float, micro: Micro) -> Mapping[str, float]:
        """As in `Replica`."""
        self.parts.append((records, weight, micro))
        return {"loss": float(micro.index)}

    def step(self, scale: float) -> None:
        """As in `Replica`."""
        self.scales.append(scale)


class Desk:
    """The member of rank 0 with all that is around it."""

    def __init__(self, *others: bytes, world: int = 1, **changes: Any) -> None:
        self.plans: list[Plan] = []
        self.asked: list[tuple[int, float]] = []
        self.error: Exception | None = None
        self.newer = False
        self.steps: list[Step] = []
        self.told: list[str] = []
        self.replica, self.ring, self.course = Noting(), Words(*others), Course()
        options: dict[str, Any] = {
            "batch_size": 10,
            "micro_batches": 4,
            "constant_batch": True,
            "seed": 7,
        }
        options |= {"code": {}, "checkpoints": Path(), "checkpoint_steps": 0, "on_nan": "fail"}
        self.leader = SimpleNamespace(plan=self._plan, replaced=False, told=lambda: None)
        engine: Any = SimpleNamespace(
            course=self.course,
            replica=self.replica,
            options=Options(**{**options, "on_step": None, "between": None, **changes}),
            dataset=SimpleNamespace(source=Numbers()),
            leader=self.leader,
            leaving=threading.Event(),
            rendezvous=SimpleNamespace(newer=lambda number: self.newer and number == 5),
            result=Result(),
            last=False,
            confirm=lambda: None,
            tell=self.steps.append,
            part=lambda: self.told.append("part"),
            save=lambda *, wait=False: self.told.append(f"save {wait}"),
        )
        self.engine, ring = engine, cast("Any", self.ring)
        members = tuple(Member(name, f"{name}-1", "127.0.0.1:1") for name in NAMES[:world])
        self.turn = Turn(engine, ring, Round(5, 0, members))

    def _plan(self, records: int, wait_s: float) -> Plan | None:
        self.asked.append((records, wait_s))
        if self.error is not None:
            raise self.error
        return self.plans.pop(0) if self.plans else NOTHING


Make = Callable[..., Desk]


@pytest.fixture
def desk() -> Iterator[Make]:
    """Makes them, and ends their threads."""
    made: list[Desk] = []

    def make(*others: bytes, **changes: Any) -> Desk:
        made.append(Desk(*others, **changes))
        return made[-1]

    yield make
    for one in made:
        one.turn.close()


@pytest.mark.parametrize(
    ("leaves", "newer", "word", "wait_s"),
    [
        (False, False, b"0", 0.5),
        (False, True, b"1", 0.05),
        (True, False, b"2", 0.05),
        (True, True, b"2", 0.05),
    ],
)
def test_without_a_step_each_member_says_whether_it_stays(
    desk: Make, *, leaves: bool, newer: bool, word: bytes, wait_s: float
) -> None:
    """One that does not ends the round for all; whoever has news waits less for records."""
    one = desk(b"1", world=2)
    one.newer = newer
    if leaves:
        one.engine.leaving.set()

    one.turn.run()

    assert one.ring.said == [word]
    assert one.asked == [(10, wait_s)]
    assert (one.told, one.engine.last, one.engine.result.whole) == ([], False, False)


def test_a_member_that_goes_ends_the_round_of_those_who_would_stay(desk: Make) -> None:
    """And a round in which all stay goes on."""
    going, staying = desk(b"2", world=2), desk(b"0", world=2)

    going.turn.run()
    assert going.ring.said == [b"0"]
    assert staying.turn._ask()  # noqa: SLF001 - `run` would go on for ever
    assert staying.ring.said == [b"0"]


def test_when_all_leave_what_only_they_have_is_saved(desk: Make) -> None:
    """By the member of rank 0, before the round ends."""
    one = desk(b"2", world=2)
    one.engine.leaving.set()

    one.turn.run()

    assert (one.told, one.engine.last, one.engine.result.whole) == (["save True"], True, False)


def test_at_the_end_of_the_data_the_model_is_saved_before_anybody_goes(desk: Make) -> None:
    """Then each is in no later round."""
    one = desk(b"0", world=2)
    one.leader.plan = lambda *_: None

    one.turn.run()

    assert (one.told, one.engine.last) == (["save True", "part"], True)
    assert one.engine.result.whole


def test_a_step_is_told_with_all_that_is_known_of_it(
    desk: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its micro-batches have chance numbers of their own, which depend on seed and step alone."""
    now_s = 100.0
    monkeypatch.setattr("edl.clock.monotonic_s", lambda: now_s)
    one = desk(checkpoint_steps=1001)
    one.course.book.take(ONE)
    one.course.step, one.course.records = 3002, 50
    one.plans, one.newer = [plan("p1", (ONE, 4, 8))], True
    now_s = 101.5

    one.turn.run()

    records = [[4, 5, 6], [7, 8, 9], [10, 11]]
    seeds = [7 + 3002 * 1_000_003 + index * 8_191 - (1 << 31) for index in range(3)]
    assert one.replica.parts == [
        (records[index], weight, Micro(3002, index, seeds[index]))
        for index, weight in enumerate((3 / 8, 3 / 8, 2 / 8))
    ]
    assert one.replica.scales == [1.0]
    loss = 1 * 3 / 8 + 2 * 2 / 8
    told = Step(3003, 2, 8, {"loss": loss}, round=5, rank=0, world=1, seconds=1.5, exchange_s=0.0)
    assert one.steps == [told]
    assert one.told == ["save False"]  # 3003 = 3 * 1001
    assert (one.course.step, one.course.records, one.course.made) == (3003, 58, "p1")
    assert one.course.book.leases() == [(ONE, 8)]


def test_a_step_of_some_members_is_smaller_where_each_does_one_part(desk: Make) -> None:
    """And so is the learning rate."""
    one = desk(constant_batch=False)
    one.course.book.take(ONE)
    one.plans, one.newer = [plan("p1", (ONE, 0, 3))], True

    one.turn.run()

    assert one.asked == [(3, 0.05), (3, 0.0)]
    assert one.replica.scales == [1 / 4]


@pytest.mark.parametrize("told", [True, False])
def test_a_leader_that_was_followed_ends_its_round(desk: Make, *, told: bool) -> None:
    """Whether it knows it already, or hears it as it asks for records."""
    one = desk()
    one.leader.replaced = told
    one.error = Refused(409, "edl:group was started anew", "incarnation")

    with pytest.raises(RoundOver) as caught:
        one.turn.run()

    assert str(caught.value) == "another member leads by now"
    assert len(one.asked) == (not told)


def test_what_else_the_master_refuses_is_no_end_of_a_round(desk: Make) -> None:
    """It would be refused in the next one, too."""
    one = desk()
    one.error = Refused(422, "the data set is odd", "dataset")

    with pytest.raises(Refused, match="the data set is odd"):
        one.turn.run()
