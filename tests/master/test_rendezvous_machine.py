"""Invariants of every round, for any order of what members and masters do."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from master.membership import MemberId
from runtime.call_checks import Json
from tests.master.crowd import Crowd, Player
from tests.support.strategies import THOROUGH

_NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
_STUCK_S = 8.0
_MAX_SILENT_S = 32.0
"""The longest silence, with limits that have grown to their maximum."""
_FIRST_SILENT_S = 4.2
"""The longest silence of a member that was never dropped: 3 s, and 1 s for its last poll."""
_END_S = 200.0


class Watched(Crowd):
    """A crowd that checks each round when it is proclaimed."""

    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        self.formed: set[int] = set()
        self.dropped: set[str] = set()
        """Members dropped since the last round."""
        self.ever_dropped: set[str] = set()
        self.member_ids: list[MemberId] = []
        """Members of the last round."""
        self.last = 0
        self.knows = True
        """Whether this master knows the last round."""
        self.frozen_s: dict[MemberId, float] = {}
        self.inherited_s = 0.0
        """When a new master took over a round, as if all its members had called."""

    def restart(self) -> None:
        """See `Crowd`."""
        super().restart()
        self.knows = False

    def on_event(self, event: str, fields: Json) -> None:
        """See `Crowd`."""
        if event == "round has formed":
            self.formed.add(fields["round"])
        elif event == "member was dropped":
            self.dropped.add(fields["trainer"])
            self.ever_dropped.add(fields["trainer"])
        elif event == "round continues":
            self.knows = fields["round"] == self.last
            self.inherited_s = self.now_s
        elif event == "round proclaimed":
            self._check()

    def exchange(self) -> None:
        """Members wait for inactive members of their round; dead ones break it."""
        for player in self.players.values():
            if player.frozen or player.halted or not player.ready or player.broken:
                continue
            members = player.view.members
            others = [(o.trainer, self.players.get(o.trainer)) for o in members]
            member_ids = {(o.trainer, o.incarnation) for o in members}
            present = [o for _, o in others if o is not None and o.member_id in member_ids]
            if len(present) < len(others):
                player.broken = True
                self.speak(player)
            elif any(o.frozen or o.halted or o.broken for o in present):
                since_s = player.waits_since_s
                player.waits_since_s = self.now_s if since_s is None else since_s
            else:
                player.waits_since_s = None

    def live(self) -> dict[MemberId, Player]:
        """The members that can train."""
        return {
            player.member_id: player
            for player in self.players.values()
            if not (player.frozen or player.halted or player.has_left or player.refused)
        }

    def _check(self) -> None:
        number = self.number
        member_ids = [slot.member_id for slot in self.master.round.slots]
        members = {member_id: self.players.get(member_id[0]) for member_id in member_ids}
        present = [
            player
            for member_id, player in members.items()
            if player is not None and player.member_id == member_id
        ]

        assert number > max((player.newest_round for player in present), default=0), (
            "numbers grow for all members"
        )
        assert len({trainer for trainer, _ in member_ids}) == len(member_ids) > 0
        assert not any(player.has_left and not player.frozen for player in present), (
            "members that have left stay out"
        )
        for member_id in member_ids:
            silent_s = max(self.inherited_s, self.frozen_s.get(member_id, self.now_s))
            frozen_s = self.now_s - silent_s
            assert frozen_s <= _MAX_SILENT_S, "frozen members are dropped"
            assert frozen_s <= _FIRST_SILENT_S or member_id[0] in self.ever_dropped
        if self.knows:
            self._check_after(member_ids)
        self.member_ids, self.last, self.dropped, self.knows = member_ids, number, set(), True

    def _check_after(self, member_ids: list[MemberId]) -> None:
        """Checks a round whose previous round this master knew."""
        over = self.last in self.formed or self.master.void >= self.last
        stayed = [
            member_id
            for member_id in self.member_ids
            if member_id in member_ids and member_id[0] not in self.dropped
        ]

        assert self.number > self.last
        assert over, "a round that was forming is not disturbed"
        assert member_ids[: len(stayed)] == stayed, "ranks are the order of age"


class Trainers(RuleBasedStateMachine):
    """A state machine of everything that can happen."""

    def __init__(self) -> None:
        super().__init__()
        self.crowd = Watched(stuck_s=_STUCK_S)

    @rule(name=_NAMES)
    def arrive(self, name: str) -> None:
        """A process starts, perhaps while one of the same name still runs."""
        self.crowd.arrive(name)

    @rule(name=_NAMES, disconnects=st.booleans())
    def kill(self, name: str, disconnects: bool) -> None:
        """A process dies."""
        if name in self.crowd.players:
            self.crowd.kill(name, disconnects=disconnects)

    @rule(name=_NAMES)
    def freeze_or_thaw(self, name: str) -> None:
        """A process stops, or continues."""
        player = self.crowd.players.get(name)
        if player is None:
            return
        player.frozen = not player.frozen
        if player.frozen:
            self.crowd.frozen_s[player.member_id] = self.crowd.now_s
        else:
            self.crowd.frozen_s.pop(player.member_id)
            self.crowd.speak(player)

    @rule(name=_NAMES)
    def halt_or_go_on(self, name: str) -> None:
        """A program stops, or continues; its process lives."""
        player = self.crowd.players.get(name)
        if player is not None and not player.broken:  # a broken one waits only for a round
            player.halted = not player.halted

    @rule(name=_NAMES)
    def leave(self, name: str) -> None:
        """A member reports that it leaves."""
        player = self.crowd.players.get(name)
        if player is not None and not player.frozen:
            self.crowd.leave(name)

    @rule(name=_NAMES)
    def break_(self, name: str) -> None:
        """A member cannot continue in its round."""
        player = self.crowd.players.get(name)
        if player is not None and not player.frozen and not player.refused and player.at:
            player.halted = False
            self.crowd.broken(name)

    @rule(steps=st.integers(1, 12), ready=st.booleans())
    def pass_time(self, steps: int, ready: bool) -> None:
        """Up to 6 s."""
        self._run(steps, ready=ready)

    @precondition(lambda self: self.crowd.number)
    @rule()
    def restart(self) -> None:
        """The master dies, and another one starts."""
        self.crowd.restart()

    def teardown(self) -> None:
        """In the end all members that can train are in one round, and no others."""
        crowd = self.crowd
        expected_ids: set[MemberId] = set()
        for _ in range(round(_END_S / 2)):
            self._run(4)
            expected_ids = set(crowd.live())
            if self._rests(expected_ids):
                break
        assert self._rests(expected_ids), (
            expected_ids,
            crowd.master.round,
            crowd.players,
            crowd.events[-9:],
        )
        assert all(player.newest_round == crowd.number for player in crowd.live().values())

    def _rests(self, expected_ids: set[MemberId]) -> bool:
        round_ = self.crowd.master.round
        if not expected_ids:
            return True
        return round_.formed and {slot.member_id for slot in round_.slots} == expected_ids

    def _run(self, steps: int, *, ready: bool = True) -> None:
        for _ in range(steps):
            self.crowd.run(0.5, ready=ready)
            self.crowd.exchange()


TestTrainers = Trainers.TestCase
TestTrainers.settings = settings(
    max_examples=5_000 if THOROUGH else 25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
