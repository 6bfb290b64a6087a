"""A member's part in a round, step by step: exactly what it sends, requests and computes."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from edl.errors import Refused, RoundOver
from edl.master.protocol import Member, Round
from edl.sync import Micro, SyncStep, step_flags
from edl.sync.group_member import GroupMember
from edl.sync.options import RunSpec, SyncOptions
from edl.sync.plans import Plan
from edl.sync.round_runner import RoundRunner
from edl.sync.step_flags import StepFlags

from tests.sdk.sync.leases import lease, plan
from tests.sdk.sync.test_step_reader import Numbers

NAMES = ("trainer-0", "trainer-1")
NOTHING = Plan("none", ())
ONE = lease(0, 64, epoch=2)


class Words:
    """A ring whose other members answer as a test defines, and send nothing else."""

    def __init__(self, *others: bytes) -> None:
        self._others = others
        self.payloads: list[bytes] = []
        self.added: Any = 0
        """What the other member adds to a sum."""

    def broadcast(self, arrays: Any, meta: bytes, source: int) -> tuple[bytes, list[Any]]:
        """As in `Ring`, for its source."""
        assert source == 0
        return meta, list(arrays)

    def gather(self, word: bytes) -> list[bytes]:
        """As in `Ring`."""
        self.payloads.append(word)
        return [word, *self._others]

    def all_reduce(self, flat: Any) -> None:
        """As in `Ring`, with one other member."""
        assert flat.dtype == np.float32
        flat += self.added

    def barrier(self) -> None:
        """As in `Ring`."""

    def check(self) -> None:
        """As in `Ring`."""


class Noting:
    """A replica that records its calls."""

    size = 3

    def __init__(self) -> None:
        self.parts: list[tuple[list[int], float, Micro]] = []
        self.scales: list[float] = []

    def backward(self, records: Any, weight: float, micro: Micro) -> Mapping[str, float]:
        """As in `Replica`."""
        self.parts.append((records, weight, micro))
        return {"loss": float(micro.index)}

    def read_gradient(self, out: Any) -> None:
        """As in `Replica`."""
        out[:] = 0

    def step(self, scale: float) -> None:
        """As in `Replica`."""
        self.scales.append(scale)


class Recorder(GroupMember):
    """A group member that records what it is to do, and does nothing."""

    def __init__(self, replica: Any, dataset: Any, options: SyncOptions, rendezvous: Any) -> None:
        session: Any = None
        super().__init__(
            replica,
            RunSpec(dataset=dataset, description={}, options=options),
            session=session,
            rendezvous=rendezvous,
            on_stop=lambda: None,
        )
        self.steps: list[SyncStep] = []
        self.calls: list[str] = []

    def confirm_leadership(self) -> None:
        """As in `GroupMember`."""

    def report_step(self, step: SyncStep) -> None:
        """As in `GroupMember`."""
        self.steps.append(step)

    def leave_rendezvous(self) -> None:
        """As in `GroupMember`."""
        self.calls.append("part")

    def save_checkpoint(self, rank: int, writers: int, *, wait: bool = False) -> None:
        """As in `GroupMember`."""
        assert (rank, writers >= 1) == (0, True)
        self.calls.append(f"save {wait}")


class Desk:
    """The member of rank 0 with everything it uses."""

    def __init__(self, *others: bytes, world_size: int = 1, **changes: Any) -> None:
        self.plans: list[Plan] = []
        self.requests: list[tuple[int, float]] = []
        self.error: Exception | None = None
        self.newer = False
        self.busy: list[tuple[bool, float, int]] = []
        self.replica, self.ring = Noting(), Words(*others)
        options: dict[str, Any] = {
            "batch_size": 10,
            "micro_batches": 4,
            "constant_batch": True,
            "seed": 7,
        }
        options |= {"code": {}, "checkpoints": Path(), "checkpoint_steps": 0, "on_nan": "fail"}
        self.leader = SimpleNamespace(plan=self._plan, replaced=False, report_ready=lambda: None)
        self.group_member = Recorder(
            self.replica,
            SimpleNamespace(source=Numbers()),
            SyncOptions(**{**options, "on_step": None, "between": None, **changes}),
            SimpleNamespace(
                newer=lambda number: self.newer and number == 5,
                busy=self._busy,
                waiting=lambda since_s: None,  # noqa: ARG005 - as in `Rendezvous`
            ),
        )
        self.group_member.leader, self.group_member.is_last = cast("Any", self.leader), False
        self.progress = self.group_member.progress
        self.calls, self.steps = self.group_member.calls, self.group_member.steps
        members = tuple(Member(name, f"{name}-1", "127.0.0.1:1") for name in NAMES[:world_size])
        nothing: Any = None
        self.runner = RoundRunner(
            self.group_member, cast("Any", self.ring), Round(5, 0, members), nothing
        )

    def run(self) -> None:
        """Makes all steps of the round."""
        for _ in self.runner.steps():
            pass

    def _busy(self, *, now: bool, max_s: float = 0.0) -> None:
        self.busy.append((now, max_s, len(self.replica.parts)))

    def _plan(self, records: int, wait_s: float) -> Plan | None:
        self.requests.append((records, wait_s))
        if self.error is not None:
            raise self.error
        return self.plans.pop(0) if self.plans else NOTHING


Make = Callable[..., Desk]


@pytest.fixture
def desk() -> Iterator[Make]:
    """Makes them, and ends their threads."""
    desks: list[Desk] = []

    def make(*others: bytes, **changes: Any) -> Desk:
        desks.append(Desk(*others, **changes))
        return desks[-1]

    yield make
    for member in desks:
        member.runner.close()


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
    """One that does not stay ends the round for all; a known later round shortens the wait."""
    member = desk(b"1", world_size=2)
    member.newer = newer
    if leaves:
        member.group_member.leaving.set()

    member.run()

    assert member.ring.payloads == [word]
    assert member.requests == [(10, wait_s)]
    assert (member.calls, member.group_member.is_last, member.group_member.result.whole) == (
        [],
        False,
        False,
    )


def test_a_member_that_goes_ends_the_round_of_those_who_would_stay(desk: Make) -> None:
    """A round in which all stay continues."""
    going, staying = desk(b"2", world_size=2), desk(b"0", world_size=2)

    going.run()
    assert going.ring.payloads == [b"0"]
    assert staying.runner._receive_plans()  # noqa: SLF001 - `run` would not end
    assert staying.ring.payloads == [b"0"]


def test_when_all_leave_what_only_they_have_is_saved(desk: Make) -> None:
    """By the member of rank 0, before the round ends."""
    member = desk(b"2", world_size=2)
    member.group_member.leaving.set()

    member.run()

    assert (member.calls, member.group_member.is_last, member.group_member.result.whole) == (
        ["save True"],
        True,
        False,
    )


def test_at_the_end_of_the_data_the_model_is_saved_before_anybody_goes(desk: Make) -> None:
    """Then each is excluded from later rounds."""
    member = desk(b"0", world_size=2)
    member.leader.plan = lambda *_: None

    member.run()

    assert (member.calls, member.group_member.is_last) == (["save True", "part"], True)
    assert member.group_member.result.whole


def test_a_step_is_reported_with_all_its_figures(
    desk: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each micro-batch has a seed of its own, which depends on seed and step alone."""
    now_s = 100.0
    monkeypatch.setattr("edl.clock.monotonic_s", lambda: now_s)
    member = desk(checkpoint_steps=1001)
    member.progress.lease_table.add(ONE)
    member.progress.step, member.progress.records = 3002, 50
    member.plans, member.newer = [plan("p1", (ONE, 4, 8))], True
    now_s = 101.5

    member.run()

    records = [[4, 5, 6], [7, 8, 9], [10, 11]]
    seeds = [7 + 3002 * 1_000_003 + index * 8_191 - (1 << 31) for index in range(3)]
    assert member.replica.parts == [
        (records[index], weight, Micro(3002, index, seeds[index]))
        for index, weight in enumerate((3 / 8, 3 / 8, 2 / 8))
    ]
    assert member.replica.scales == [1.0]
    loss = 1 * 3 / 8 + 2 * 2 / 8
    step = SyncStep(
        3003, 2, 8, {"loss": loss}, round=5, rank=0, world_size=1, seconds=1.5, exchange_s=0.0
    )
    assert member.steps == [step]
    assert member.calls == ["save False"]  # 3003 = 3 * 1001
    assert (member.progress.step, member.progress.records, member.progress.last_plan) == (
        3003,
        58,
        "p1",
    )
    assert member.progress.lease_table.leases() == [(ONE, 8)]


def test_nobody_is_dropped_in_the_first_step_of_a_process_which_may_compile(desk: Make) -> None:
    """For 15 minutes at most: it might hang. Later steps have the usual limit."""
    member = desk()
    member.newer = True
    for name in ("p0", "p1"):
        member.plans = [plan(name, (ONE, 0, 10))]
        member.run()

    assert len(member.steps) == 2
    assert member.busy == [(True, 900.0, 0), (False, 0.0, len(member.replica.parts) // 2)]


def test_metrics_of_other_names_are_summed_name_by_name(
    desk: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the gradient their order would differ: such a step costs one exchange more."""
    seconds = count()
    member = desk(b'{"loss": 0.5, "accuracy": 1}', world_size=2)
    flags = StepFlags(metrics={"loss": 0.25, "recall": 0.125})
    other = StepFlags(metrics={"loss": 0.5, "accuracy": 1.0})
    member.ring.added = np.zeros(member.replica.size + step_flags.SIZE, np.float32)
    other.write(member.ring.added[member.replica.size :])

    monkeypatch.setattr("edl.clock.monotonic_s", lambda: float(next(seconds)))
    member.runner._sum_gradients(flags)  # noqa: SLF001 - `run` would need another member

    assert flags.metrics == {"loss": 0.75, "recall": 0.125, "accuracy": 1.0}
    assert member.ring.payloads == [b'{"loss":0.25,"recall":0.125}']
    assert member.runner._exchange_s == 2.0  # noqa: SLF001 - of a second each


def test_the_end_of_a_round_does_not_wait_for_a_read_that_hangs(desk: Make) -> None:
    """A second at most: the next round has begun."""
    waits: list[float] = []
    member = desk()
    reader = member.runner._reader  # noqa: SLF001
    reader.close, close = waits.append, reader.close  # type: ignore[method-assign,assignment]
    member.runner.close()
    close(60)
    reader.close = close  # type: ignore[method-assign]

    assert waits == [1.0]


def test_a_step_of_some_members_is_smaller_where_each_does_one_part(desk: Make) -> None:
    """And so is the learning rate."""
    member = desk(constant_batch=False)
    member.progress.lease_table.add(ONE)
    member.plans, member.newer = [plan("p1", (ONE, 0, 3))], True

    member.run()

    assert member.requests == [(3, 0.05), (3, 0.0)]
    assert member.replica.scales == [1 / 4]


@pytest.mark.parametrize("already_replaced", [True, False])
def test_a_leader_that_was_followed_ends_its_round(desk: Make, *, already_replaced: bool) -> None:
    """Whether it has noticed already, or is refused as it asks for records."""
    leader = desk()
    leader.leader.replaced = already_replaced
    leader.error = Refused(409, "edl:group was started anew", "incarnation")

    with pytest.raises(RoundOver) as caught:
        leader.run()

    assert str(caught.value) == "another member leads by now"
    assert len(leader.requests) == (not already_replaced)


def test_what_else_the_master_refuses_is_no_end_of_a_round(desk: Make) -> None:
    """It would be refused in the next one, too."""
    leader = desk()
    leader.error = Refused(422, "the data set is odd", "dataset")

    with pytest.raises(Refused, match="the data set is odd"):
        leader.run()
