"""The start of a round: who lacks something gets it, and nobody else reads or moves a state."""

from typing import Any

import numpy as np
from edl.collective import Ring
from edl.master.protocol import Member, Round
from edl.sync import State
from edl.sync.group_member import GroupMember, KeptStep
from edl.sync.growth import Growth
from edl.sync.options import RunSpec, SyncOptions
from edl.sync.parts import ArrayGroup
from edl.sync.round_start import RoundStart
from edl.sync.step_flags import SIZE

from tests.sdk.collective.rings import Seats, Take
from tests.sdk.sync.leases import lease, plan
from tests.sdk.sync.replicas import Softmax

ONE = lease(0, 64)


class Counting(Softmax):
    """A model that counts how often its state is read and loaded."""

    reads = loads = 0

    def state(self) -> State:
        """As in `Replica`."""
        self.reads += 1
        return super().state()

    def groups(self) -> list[ArrayGroup]:
        """As in `PartedReplica`: it is handed over at once."""
        return []

    def load(self, state: State) -> None:
        """As in `Replica`."""
        self.loads += 1
        super().load(state)


def _member(*, has_state: bool) -> GroupMember:
    """A member after a step that all have made; or a newcomer."""
    nothing: Any = None
    fields: Any = dict.fromkeys(SyncOptions.__dataclass_fields__)
    fields |= {"batch_size": 10, "micro_batches": 4, "checkpoint_steps": 0, "on_nan": "fail"}
    member = GroupMember(
        Counting(seed=0 if has_state else 9),
        RunSpec(dataset=nothing, description={}, options=SyncOptions(**fields)),
        session=nothing,
        rendezvous=nothing,
        on_stop=lambda: None,
    )
    if has_state:
        member.progress.term, member.progress.lineage = 3, 77
        member.progress.lease_table.add(ONE)
    return member


def _begin_step(member: GroupMember, *, makes_it: bool) -> None:
    """The member begins a step of round 4, and makes it or not."""
    replica, progress = member.replica, member.progress
    progress.flight = plan("p1", (ONE, 0, 10))
    if not makes_it:
        return
    member.buffer = np.arange(replica.size + SIZE, dtype=np.float32)
    replica.write_gradient(member.buffer[: replica.size])
    replica.step(0.5)
    before = progress.lineage
    progress.advance({"loss": 2.0}, round_number=4)
    member.kept_step = KeptStep(progress.lineage, before, 0.5)


def _start(seats: Seats, members: list[GroupMember]) -> list[Any]:
    """All begin round 5; the model and the counts of each."""
    names = tuple(Member(f"trainer-{i}", "x", "h:1") for i in range(len(members)))
    nothing: Any = None

    def act(ring: Ring) -> Any:
        member = members[ring.rank]
        round_ = Round(5, ring.rank, names)
        growth = Growth(member.replica, ring, round_, nothing)
        RoundStart(member, ring, round_, growth).synchronize_state()
        replica: Any = member.replica
        progress = member.progress.step, member.progress.lineage, member.progress.last_plan
        return replica.weights.tobytes(), progress, (replica.reads, replica.loads)

    return seats.run(act)


def test_survivors_that_lack_a_step_make_it_with_the_gradient_of_the_others(
    take: Take,
) -> None:
    """No state is read or sent; all have the same bits and the same progress after it."""
    members = [_member(has_state=True) for _ in range(4)]
    for rank, member in enumerate(members):
        _begin_step(member, makes_it=rank in (1, 2))
    ended = _start(take(4), members)

    assert len({(model, progress) for model, progress, _ in ended}) == 1
    assert ended[0][1][0] == 1
    assert [counts for _, _, counts in ended] == [(0, 0)] * 4


def test_a_newcomer_gets_the_state_of_the_one_before_it(take: Take) -> None:
    """Nobody else reads its own, not even for a checksum."""
    members = [_member(has_state=rank < 3) for rank in range(4)]
    for member in members[:3]:
        _begin_step(member, makes_it=True)
    ended = _start(take(4), members)

    assert len({(model, progress) for model, progress, _ in ended}) == 1
    assert [counts for _, _, counts in ended] == [(0, 0), (0, 0), (1, 0), (0, 1)]


def test_a_survivor_whose_gradient_is_gone_everywhere_gets_the_state(
    take: Take,
) -> None:
    """The others had begun the next step."""
    members = [_member(has_state=True) for _ in range(2)]
    for rank, member in enumerate(members):
        _begin_step(member, makes_it=rank == 0)
    members[0].kept_step = None
    ended = _start(take(2), members)

    assert len({(model, progress) for model, progress, _ in ended}) == 1
    assert [counts for _, _, counts in ended] == [(1, 0), (0, 1)]
