"""A member of a group by itself: what it tells its master, its program and other members."""

from types import SimpleNamespace
from typing import Any

import pytest
from edl.errors import RoundOver
from edl.master.protocol import Member, Round
from edl.sync import SyncStep
from edl.sync.fallback import Fallback
from edl.sync.group_member import GroupMember
from edl.sync.options import RunSpec, SyncOptions
from edl.sync.round_start import RoundStart

from tests.sdk.sync.leases import lease, plan
from tests.sdk.sync.replicas import Softmax, data


class Rendezvous:
    """Notes when the member is busy; no later round begins."""

    def __init__(self) -> None:
        self.busy_calls: list[bool] = []

    def busy(self, *, now: bool) -> None:
        """As in `Rendezvous`."""
        self.busy_calls.append(now)

    def newer(self, number: int) -> bool:
        """As in `Rendezvous`."""
        assert number >= 0
        return False


def _member(**options: Any) -> GroupMember:
    fields: Any = dict.fromkeys(SyncOptions.__dataclass_fields__)
    fields |= {"batch_size": 10, "micro_batches": 4, "checkpoint_steps": 0, "on_nan": "fail"}
    session: Any = SimpleNamespace(settings=None)
    rendezvous: Any = Rendezvous()
    return GroupMember(
        Softmax(),
        RunSpec(dataset=data(), description={}, options=SyncOptions(**{**fields, **options})),
        session=session,
        rendezvous=rendezvous,
        on_stop=lambda: None,
    )


def test_a_leader_sets_the_data_back_to_what_its_model_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step is the version; without an event, or a known position, the data stays as it is."""
    targets: list[Any] = []

    def lead(*_: Any, target: Any, **__: Any) -> Any:
        targets.append(target)
        session = SimpleNamespace(term=3)
        return SimpleNamespace(session=session, replaced=False, abandon=lambda: None)

    monkeypatch.setattr("edl.sync.group_member.Leader", lead)
    member = _member()
    member.progress.step = 40
    member.progress.data.train(plan("p", (lease(0, 64), 0, 10)).spans)

    assert member.start_term(2, "term-2", "all trainers were lost")
    member.drop_leadership()
    assert member.start_term(3)
    member.drop_leadership()
    member.progress.data.load(None)
    assert member.start_term(3, "term-3", "again")

    remaining = {"points/0/0": 54}
    about = {"event": "term-2", "reason": "all trainers were lost", "version": 40}
    assert targets == [{**about, "position": None, "remaining": remaining}, None, None]
    assert member.progress.term == 3


def test_between_two_steps_the_program_gets_the_step_while_others_wait() -> None:
    """They do not drop a member that evaluates for long."""
    seen: list[tuple[str, SyncStep]] = []
    member = _member(
        on_step=lambda step: seen.append(("on_step", step)),
        between=lambda step: seen.append(("between", step)),
    )
    step = SyncStep(1, 0, 10, {}, round=1, rank=0, world_size=1, seconds=1.0, exchange_s=0.0)
    member.report_step(step)

    rendezvous: Any = member.rendezvous
    assert seen == [("on_step", step), ("between", step)]
    assert rendezvous.busy_calls == [True, False]


def test_a_member_that_may_not_even_fall_back_leaves_the_round_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The master has heard of a newer model meanwhile."""
    member, terms = _member(), list[int]()
    nothing: Any = None

    def start_term(after: int, *_: str) -> bool:
        terms.append(after)
        return False

    monkeypatch.setattr(member, "start_term", start_term)
    fallback = Fallback(7, from_checkpoint=False, reason="all trainers were lost")
    monkeypatch.setattr("edl.sync.round_start.fall_back", lambda *_: fallback)
    round_ = Round(5, 0, (Member("trainer-0", "x", "h:1"),))
    with pytest.raises(RoundOver) as caught:
        RoundStart(member, nothing, round_, nothing).begin_term()

    assert str(caught.value) == "others train on"
    assert terms == [0, 7]
