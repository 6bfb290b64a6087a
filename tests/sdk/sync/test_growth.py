"""Growth while the others train: parts that arrive stay the newest, and nothing is lost on the way."""

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from edl.collective import Interrupt, Ring
from edl.errors import RoundOver
from edl.master.protocol import Member, Round
from edl.sync import State, SyncStep, parts
from edl.sync.agreement import StateReport, agree
from edl.sync.group_member import GroupMember
from edl.sync.growth import Growth, Streams
from edl.sync.options import RunSpec
from edl.sync.parts import ArrayGroup, Slice, cut
from edl.sync.state_stream import SourceShare, StateSender
from edl.sync.step_flags import SIZE, SOURCES, StepFlags

from tests.master.serving import Served
from tests.sdk.collective.rings import Seats, Take
from tests.sdk.sync.crews import Crew, Trainer, done_records, together
from tests.sdk.sync.replicas import Floats, Softmax

_MANY = 1_000
"""Steps; about ten are needed if each message is sent before the next step."""


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """States of some hundred bytes are large, and a part has 64 bytes."""
    monkeypatch.setattr(parts, "MIN_BYTES", 1)
    monkeypatch.setattr(StateSender, "part_bytes", 64)


def test_parts_have_all_elements_once_and_are_of_even_size() -> None:
    """Arrays of a group stay together; small groups share a part, large ones take several."""
    groups = [
        ArrayGroup(("a", "a/mean"), 10, 8),
        ArrayGroup(("b",), 3, 4),
        ArrayGroup(("c",), 30, 4),
    ]

    pieces = list(cut(groups, 48))

    assert pieces == [
        [Slice(("a", "a/mean"), 0, 6)],
        [Slice(("a", "a/mean"), 6, 10), Slice(("b",), 0, 3), Slice(("c",), 0, 1)],
        [Slice(("c",), 1, 13)],
        [Slice(("c",), 13, 25)],
        [Slice(("c",), 25, 30)],
    ]


def test_an_element_larger_than_a_part_is_a_part_and_empty_arrays_are_none() -> None:
    """No state makes an endless loop."""
    groups = [ArrayGroup(("none",), 0, 4), ArrayGroup(("wide",), 2, 100)]
    assert list(cut(groups, 48)) == [[Slice(("wide",), 0, 1)], [Slice(("wide",), 1, 2)]]


def test_only_the_last_ranks_get_a_large_state_in_parts() -> None:
    """Where a member between others lacks it, or the state cannot be cut, all wait for it."""
    newest, newcomer = StateReport("a", 4, 9, 7, parts=90), StateReport("b", parts=50)
    assert not agree([newest, newcomer, newcomer]).in_parts, "most would wait for one to train"
    assert not agree([newest, StateReport("b")]).in_parts
    assert agree([newest, newest, newcomer, newcomer]).in_parts
    assert not agree([newest, newcomer, newest]).in_parts
    assert not agree([StateReport("a", 4, 9, 7), newcomer]).in_parts
    assert not agree([newcomer, newcomer]).in_parts
    assert not agree([newest, StateReport("b", 3, 9, 7)]).in_parts


def test_members_that_would_cut_their_state_differently_hand_it_over_at_once() -> None:
    """Each would send every n-th of other parts: some elements would be lost."""
    one, other = StateReport("a", 4, 9, 7, parts=90), StateReport("b", 4, 9, 7, parts=60)
    newcomer = StateReport("c", parts=50)
    assert agree([one, one, newcomer]).in_parts
    assert not agree([one, other, newcomer]).in_parts


class Quiet:
    """A rendezvous to which nobody reports a wait."""

    def waiting(self, since_s: float | None) -> None:
        """As in `Rendezvous`."""


class Scheduled(Softmax):
    """A replica with a schedule of its rate, which parts do not have; it counts what is read of it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rest_state = State({"rates": np.full(3, seed, np.float32)}, {"epoch": seed})
        self.read_bytes = 0

    def read_slice(self, name: str, start: int, stop: int) -> Floats:
        """As in `PartedReplica`."""
        elements = super().read_slice(name, start, stop)
        self.read_bytes += elements.nbytes
        return elements

    def rest(self) -> State:
        """As in `PartedReplica`."""
        return self.rest_state

    def load_rest(self, rest: State) -> None:
        """As in `PartedReplica`."""
        self.rest_state = rest


def _member(seed: int, term: int = 0) -> GroupMember:
    """A member that has a state if it has a term."""
    nothing: Any = None
    options: Any = SimpleNamespace(checkpoints=None)
    quiet: Any = Quiet()
    member = GroupMember(
        Scheduled(seed),
        RunSpec(dataset=nothing, description={}, options=options),
        session=nothing,
        rendezvous=quiet,
        on_stop=lambda: None,
    )
    member.progress.term = term
    return member


def _step(growth: Growth, ring: Ring, member: GroupMember) -> None:
    """A step in which the member of each rank that computes has another gradient."""
    flags, replica = StepFlags(), member.replica
    growth.write_flags(flags)
    buffer = np.zeros(replica.size + SIZE, np.float32)
    if ring.rank < growth.workers:
        buffer[: replica.size] = np.sin(np.arange(replica.size)) * (ring.rank + 1)
    flags.write(buffer[replica.size :])
    ring.all_reduce(buffer)
    flags.read(buffer[replica.size :], [])
    growth.read_flags(flags)
    if growth.applies:
        replica.write_gradient(buffer[: replica.size])
        replica.step(0.01)


def _grow(
    seats: Seats,
    members: list[GroupMember],
    receivers: set[int],
    steps: int,
    *,
    number: int = 1,
    lost: int | None = None,
) -> list[Any]:
    """What each member has after the steps of a round, and what it was after each of them.

    These are `steps` at most, or all until the newcomers compute. The member of rank `lost` leaves
    then; the others begin one more.
    """
    names = tuple(Member(f"trainer-{i}", "x", "h:1") for i in range(len(members)))

    def act(ring: Ring) -> Any:
        rank, member, interrupt = ring.rank, members[ring.rank], Interrupt()

        def connect(ranks: Sequence[int], channel: int) -> Ring:
            return seats.connect(rank, number, interrupt=interrupt, ranks=ranks, channel=channel)

        growth = Growth(
            member.replica, ring, Round(number, rank, names), Streams(interrupt, connect)
        )
        growth.plan(receivers, member.progress.undo())
        growth.start()
        after: list[tuple[bool, int]] = []
        while len(after) < steps and growth.workers < len(members):
            _step(growth, ring, member)
            after.append((growth.is_complete, growth.workers))
        ring.barrier()
        if lost not in (None, rank):
            with pytest.raises(RoundOver):
                _step(growth, ring, member)
        growth.close()
        interrupt.close()
        state = member.replica.state().arrays
        return {name: array.tobytes() for name, array in state.items()}, after

    return seats.run(act, number=number)


@pytest.mark.usefixtures("small_parts")
def test_newcomers_have_the_state_of_the_others_after_steps_in_which_all_went_on(
    take: Take,
) -> None:
    """Bit for bit, parameters, momentum and what is in no part; two newcomers get it one from the other."""
    members = [_member(0, term=1), _member(0, term=1), _member(2), _member(3)]

    states, after = zip(*_grow(take(4), members, {2, 3}, _MANY), strict=True)

    assert states[0] == states[1] == states[2] == states[3]
    rests = [member.replica.rest() for member in members if isinstance(member.replica, Scheduled)]
    assert [rest.extra for rest in rests] == [{"epoch": 0}] * 4
    assert [rest.arrays["rates"].tolist() for rest in rests] == [[0.0] * 3] * 4
    assert after[0][0] == (True, 2), "the others make their first step without a wait"
    assert after[2][0] == after[3][0] == (False, 2), "newcomers compute nothing in it"
    assert {member[-1] for member in after} == {(True, 4)}
    assert len({tuple(workers for _, workers in member) for member in after}) == 1


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(("sources", "newcomers"), [(1, 1), (2, 1), (3, 2), (SOURCES + 2, 1)])
def test_the_members_that_have_the_state_send_equal_shares_of_it(
    take: Take, sources: int, newcomers: int
) -> None:
    """Each part is read in one of them, and none sends more than one part more than another.

    No more than `SOURCES` of them send; the others train on.
    """
    members = [_member(0, term=1) for _ in range(sources)]
    members += [_member(2 + number) for number in range(newcomers)]
    receivers = set(range(sources, sources + newcomers))

    states, after = zip(*_grow(take(len(members)), members, receivers, _MANY), strict=True)

    assert all(state == states[0] for state in states)
    assert all(member[-1] == (True, len(members)) for member in after)
    read = [
        member.replica.read_bytes for member in members if isinstance(member.replica, Scheduled)
    ]
    silent = max(0, sources - SOURCES)
    assert read[:silent] + read[sources:] == [0] * (silent + newcomers)
    assert sum(read) == sum(array.nbytes for array in members[0].replica.state().arrays.values())
    assert max(read) - min(read[silent:sources]) <= StateSender.part_bytes


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("lost", [0, 1])
def test_a_source_that_is_lost_in_the_midst_is_gone_without(take: Take, lost: int) -> None:
    """The newcomer returns to what it had, and gets the state from the sources that are left."""
    members = [_member(0, term=5), _member(0, term=5), _member(1)]
    own = members[2].replica.state().arrays["weights"].tobytes()

    broken = _grow(take(3), members, {2}, 2, lost=lost)

    assert broken[2][1][-1] == (False, 2), "the case is one of an incomplete state"
    assert broken[2][0]["weights"] == own
    del members[lost]

    states, after = zip(*_grow(take(2), members, {1}, _MANY, number=2), strict=True)

    assert states[0] == states[1]
    assert after[1][-1] == (True, 2)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("term", [0, 1])
def test_a_member_that_has_some_parts_returns_to_what_it_had(take: Take, term: int) -> None:
    """Its own model and progress, if it had any: half a model is never trained on."""
    members = [_member(0, term=5), _member(1, term=term)]
    own = members[1].replica.state().arrays["weights"].tobytes()

    (_, after), (state, _) = _grow(take(2), members, {1}, 3)

    assert after[-1] == (True, 1), "the case is one of an incomplete state"
    assert state["weights"] == own
    assert members[1].progress.term == term


@pytest.mark.usefixtures("small_parts")
def test_a_trainer_that_comes_in_the_midst_ends_with_the_model_of_one_alone(
    master: Served, tmp_path: Path
) -> None:
    """Its parts are of different steps; every record is trained once, and counted once."""
    other = Served(tmp_path / "other")
    alone = Crew(other, epochs=6).add()
    assert alone.end().whole
    other.stop()
    crew = Crew(master, epochs=6)

    def invite(trainer: Trainer, step: SyncStep) -> None:
        if step.step in (5, 40) and trainer is crew.trainers[0]:
            crew.add()
        together(trainer, step, 1 + (step.step >= 5) + (step.step >= 40))

    crew.add(invite, Softmax(0))
    results = [trainer.end() for trainer in crew.trainers]

    weights = [trainer.replica.state().arrays["weights"] for trainer in crew.trainers]
    assert [result.records for result in results] == [6 * 512] * 3
    assert all(np.array_equal(weights[0], array) for array in weights[1:])
    assert np.allclose(weights[0], alone.replica.state().arrays["weights"], rtol=1e-3, atol=1e-4)
    assert crew.trainers[1].steps[0].step > 6, "it takes no part before it has the state"
    assert done_records(master) == 6 * 512


@pytest.mark.usefixtures("small_parts")
def test_a_source_may_leave_in_the_midst(master: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newcomer begins again with the other one; every record is trained once."""
    crew, leavers = Crew(master, epochs=6), list[Trainer]()
    offer = StateSender.offer

    def leave(sender: StateSender) -> int:
        count = offer(sender)
        if sender.share == SourceShare(1, 2) and not leavers:
            name = threading.current_thread().name
            leavers.append(next(trainer for trainer in crew.trainers if trainer.name == name))
            leavers[0].member.stop()
        return count

    def invite(trainer: Trainer, step: SyncStep) -> None:
        together(trainer, step, 2)
        if step.world_size == 2 and len(crew.trainers) == 2 and trainer is crew.trainers[0]:
            crew.add()
        if not leavers:
            together(trainer, step, len(crew.trainers))

    monkeypatch.setattr(StateSender, "offer", leave)
    first = crew.add(invite)
    assert first.began.wait(60)
    second = crew.add(invite)
    results = {trainer: trainer.end() for trainer in (first, second)}
    newcomer = crew.trainers[2]
    results[newcomer] = newcomer.end()

    (leaver,) = leavers
    (stayer,) = {first, second} - {leaver}
    assert [results[trainer].whole for trainer in (leaver, stayer, newcomer)] == [False, True, True]
    assert newcomer.steps[0].round > leaver.steps[-1].round, "it had the state before one left"
    weights = [trainer.replica.state().arrays["weights"] for trainer in (stayer, newcomer)]
    assert np.array_equal(weights[0], weights[1])
    assert done_records(master) == 6 * 512
