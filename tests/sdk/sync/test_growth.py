"""Growth while the others train: parts that arrive stay the newest, and nothing is lost on the way."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from edl.collective import Interrupt, Ring
from edl.master.protocol import Member, Round
from edl.sync import State, SyncStep, parts
from edl.sync.agreement import StateReport, agree
from edl.sync.group_member import GroupMember
from edl.sync.growth import Growth, Streams
from edl.sync.parts import ArrayGroup, Slice, cut
from edl.sync.state_stream import StateSender
from edl.sync.step_flags import SIZE, StepFlags

from tests.master.serving import Served
from tests.sdk.collective.rings import Seats, Take
from tests.sdk.sync.crews import Crew, Trainer, done_records, together
from tests.sdk.sync.replicas import Softmax


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
    newest, newcomer = StateReport("a", 4, 9, 7, parts=True), StateReport("b", parts=True)
    assert not agree([newest, newcomer, newcomer]).in_parts, "most would wait for one to train"
    assert not agree([newest, StateReport("b")]).in_parts
    assert agree([newest, newest, newcomer, newcomer]).in_parts
    assert not agree([newest, newcomer, newest]).in_parts
    assert not agree([StateReport("a", 4, 9, 7), newcomer]).in_parts
    assert not agree([newcomer, newcomer]).in_parts
    assert not agree([newest, StateReport("b", 3, 9, 7)]).in_parts


class Quiet:
    """A rendezvous to which nobody reports a wait."""

    def waiting(self, since_s: float | None) -> None:
        """As in `Rendezvous`."""


class Scheduled(Softmax):
    """A replica with a schedule of its rate, which parts do not have."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rest_state = State({"rates": np.full(3, seed, np.float32)}, {"epoch": seed})

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
        nothing,
        {},
        options,
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


def _grow(seats: Seats, members: list[GroupMember], receivers: set[int], steps: int) -> list[Any]:
    """What each member has after the steps of a round, and what it was after each of them."""
    names = tuple(Member(f"trainer-{i}", "x", "h:1") for i in range(len(members)))

    def act(ring: Ring) -> Any:
        rank, member, interrupt = ring.rank, members[ring.rank], Interrupt()
        streams = Streams(interrupt, lambda: seats.connect(rank, interrupt=interrupt))
        growth = Growth(member.replica, ring, Round(1, rank, names), streams)
        growth.plan(receivers, member.progress.undo())
        growth.start()
        after = []
        for _ in range(steps):
            _step(growth, ring, member)
            after.append((growth.is_complete, growth.workers))
        ring.barrier()
        growth.close()
        interrupt.close()
        state = member.replica.state().arrays
        return {name: array.tobytes() for name, array in state.items()}, after

    return seats.run(act)


@pytest.mark.usefixtures("small_parts")
def test_newcomers_have_the_state_of_the_others_after_steps_in_which_all_went_on(
    take: Take,
) -> None:
    """Bit for bit, parameters, momentum and what is in no part; two newcomers get it one from the other."""
    members = [_member(0, term=1), _member(0, term=1), _member(2), _member(3)]

    states, after = zip(*_grow(take(4), members, {2, 3}, 16), strict=True)

    assert states[0] == states[1] == states[2] == states[3]
    rests = [member.replica.rest() for member in members if isinstance(member.replica, Scheduled)]
    assert [rest.extra for rest in rests] == [{"epoch": 0}] * 4
    assert [rest.arrays["rates"].tolist() for rest in rests] == [[0.0] * 3] * 4
    assert after[0][0] == (True, 2), "the others make their first step without a wait"
    assert after[2][0] == after[3][0] == (False, 2), "newcomers compute nothing in it"
    assert {member[-1] for member in after} == {(True, 4)}
    assert len({tuple(workers for _, workers in member) for member in after}) == 1


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
