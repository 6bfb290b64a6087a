"""The records of each step, whoever leads: random rounds of the model of a group."""

from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sdk.sync.group_model import EPOCHS, RECORDS, Group, LostStateError, Member, Step

_TASK_RECORDS = [16, 64, 96, 128]
_ACTS = 250
_MAX_MEMBERS = 5


@cache
def _alone(task_records: int) -> list[Step]:
    """The records of each step of one trainer."""
    group = Group(task_records)
    group.begin_round([group.newcomer()])
    while not group.over:
        for _ in range(4):
            group.leader.advance_call()
        group.send_plans(4, ())
        while group.members[0].plans:
            group.step(group.members)
    return group.members[0].model


class _Life:
    """A group to which random things happen."""

    def __init__(self, task_records: int, chance: Random) -> None:
        self.group, self._chance = Group(task_records), chance
        self._expected = _alone(task_records)
        self._frozen: list[Member] = []
        self.group.begin_round([self.group.newcomer() for _ in range(chance.randint(1, 4))])

    def act(self) -> None:
        """A part of a call for work, a plan message, a step or another round."""
        act = self._chance.choices(
            [self.group.leader.advance_call, self._plan, self._step, self._change], [8, 3, 7, 2]
        )[0]
        act()

    def _plan(self) -> None:
        if self.group.members[0].plans:
            return
        followers = self.group.members[1:]
        whole = self._chance.random() < 0.9
        receivers = followers if whole else followers[: self._chance.randint(0, len(followers))]
        self.group.send_plans(self._chance.randint(1, 6), receivers)
        if len(receivers) < len(followers):
            self._change()

    def _step(self) -> None:
        if not all(member.plans for member in self.group.members):
            return
        whole = self._chance.random() < 0.9
        makers = [m for m in self.group.members if whole or self._chance.random() < 0.5]
        step, records = self.group.step(makers)
        assert records == self._expected[step]
        if not whole:
            self._change()

    def _change(self) -> None:
        """One is lost or frozen, others come or come back, in any order."""
        chance, members = self._chance, list(self.group.members)
        if len(members) > 1 and chance.random() < 0.7:
            lost = members.pop(0 if chance.random() < 0.5 else chance.randrange(len(members)))
            if chance.random() < 0.5:
                self._frozen.append(lost)
        if self._frozen and chance.random() < 0.4:
            members.append(self._frozen.pop(chance.randrange(len(self._frozen))))
        while len(members) < 2 or (len(members) < _MAX_MEMBERS and chance.random() < 0.3):
            members.append(self.group.newcomer())
        if chance.random() < 0.3:
            chance.shuffle(members)
        self.group.begin_round(members)


@pytest.mark.parametrize("task_records", _TASK_RECORDS)
def test_one_trainer_trains_each_record_once_an_epoch(task_records: int) -> None:
    """What the random groups are compared with."""
    records = [record for step in _alone(task_records) for record in step]
    assert sorted(records) == [(epoch, at) for epoch in range(EPOCHS) for at in range(RECORDS)]


@settings(deadline=None)
@given(task_records=st.sampled_from(_TASK_RECORDS), seed=st.integers(0, 2**32))
def test_each_step_has_the_records_that_it_has_without_changes(
    task_records: int, seed: int
) -> None:
    """Leaders are lost at any point of a call, lead again, and come back with old lease tables."""
    life = _Life(task_records, Random(seed))  # noqa: S311 - the same in every run
    try:
        for _ in range(_ACTS):
            if not life.group.over:
                life.act()
    except LostStateError:
        return
    for member in life.group.members if life.group.over else ():
        assert member.model == _alone(task_records)
