"""Whatever members and masters do, in any order: what must hold of rounds holds of each of them."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from master.attendance import Who
from tests.master.crowd import Crowd, Json, Player
from tests.support.strategies import THOROUGH

_NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
_STUCK_S = 8.0
_MOST_SILENT_S = 32.0
"""With limits that have grown as far as they can."""
_FIRST_SILENT_S = 4.2
"""Of one that was never dropped: 3 s, and the 1 s that its last poll may have waited."""
_END_S = 200.0


class Watched(Crowd):
    """Checks each round when it is proclaimed."""

    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        self.formed: set[int] = set()
        self.dropped: set[str] = set()
        """Since the last round."""
        self.ever_dropped: set[str] = set()
        self.seats: list[Who] = []
        """Of the last round."""
        self.last = 0
        self.knows = True
        """Whether this master knows the last round."""
        self.frozen_s: dict[Who, float] = {}
        self.inherited_s = 0.0
        """When a new master took a round over, as if it had heard everybody in it."""

    def restart(self) -> None:
        """See `Crowd`."""
        super().restart()
        self.knows = False

    def happened(self, event: str, told: Json) -> None:
        """See `Crowd`."""
        if event == "round has formed":
            self.formed.add(told["round"])
        elif event == "member was dropped":
            self.dropped.add(told["trainer"])
            self.ever_dropped.add(told["trainer"])
        elif event == "round goes on":
            self.knows = told["round"] == self.last
            self.inherited_s = self.now_s
        elif event == "round proclaimed":
            self._check()

    def exchange(self) -> None:
        """Members wait for those of their round who do nothing; those who are dead break it."""
        for one in self.players.values():
            if one.frozen or one.halted or not one.ready or one.broken:
                continue
            others = [(o["trainer"], self.players.get(o["trainer"])) for o in one.members]
            whos = {(o["trainer"], o["incarnation"]) for o in one.members}
            there = [o for _, o in others if o is not None and o.who in whos]
            if len(there) < len(others):
                one.broken = True
                self.speak(one)
            elif any(o.frozen or o.halted or o.broken for o in there):
                since_s = one.waits_since_s
                one.waits_since_s = self.now_s if since_s is None else since_s
            else:
                one.waits_since_s = None

    def live(self) -> dict[Who, Player]:
        """Those who can train."""
        return {
            one.who: one
            for one in self.players.values()
            if not (one.frozen or one.halted or one.left or one.refused)
        }

    def _check(self) -> None:
        number = self.number
        seats = [seat.who for seat in self.master.round.seats]
        members = {w: self.players.get(w[0]) for w in seats}
        there = [one for w, one in members.items() if one is not None and one.who == w]

        assert number > max((one.seen for one in there), default=0), (
            "numbers grow for all who hear them"
        )
        assert len({trainer for trainer, _ in seats}) == len(seats) > 0
        assert not any(one.left and not one.frozen for one in there), "who has left stays out"
        for who in seats:
            silent_s = max(self.inherited_s, self.frozen_s.get(who, self.now_s))
            frozen_s = self.now_s - silent_s
            assert frozen_s <= _MOST_SILENT_S, "who is frozen is out"
            assert frozen_s <= _FIRST_SILENT_S or who[0] in self.ever_dropped
        if self.knows:
            self._check_after(seats)
        self.seats, self.last, self.dropped, self.knows = seats, number, set(), True

    def _check_after(self, seats: list[Who]) -> None:
        """Of a round that comes after one that this master knew."""
        over = self.last in self.formed or self.master.void >= self.last
        stayed = [who for who in self.seats if who in seats and who[0] not in self.dropped]

        assert self.number > self.last
        assert over, "a round that was forming is not disturbed"
        assert seats[: len(stayed)] == stayed, "ranks are the order of age"


class Trainers(RuleBasedStateMachine):
    """Everything that can happen."""

    def __init__(self) -> None:
        super().__init__()
        self.crowd = Watched(stuck_s=_STUCK_S)

    @rule(name=_NAMES)
    def arrive(self, name: str) -> None:
        """A process begins, where one of that name may be still."""
        self.crowd.arrive(name)

    @rule(name=_NAMES, heard=st.booleans())
    def kill(self, name: str, heard: bool) -> None:
        """A process dies."""
        if name in self.crowd.players:
            self.crowd.kill(name, heard=heard)

    @rule(name=_NAMES)
    def freeze_or_thaw(self, name: str) -> None:
        """A process stops, or goes on."""
        one = self.crowd.players.get(name)
        if one is None:
            return
        one.frozen = not one.frozen
        if one.frozen:
            self.crowd.frozen_s[one.who] = self.crowd.now_s
        else:
            self.crowd.frozen_s.pop(one.who)
            self.crowd.speak(one)

    @rule(name=_NAMES)
    def halt_or_go_on(self, name: str) -> None:
        """A program does nothing any more, or goes on; its process lives."""
        one = self.crowd.players.get(name)
        if one is not None and not one.broken:  # then it waits for a round, and for nothing else
            one.halted = not one.halted

    @rule(name=_NAMES)
    def leave(self, name: str) -> None:
        """A member says that it leaves."""
        one = self.crowd.players.get(name)
        if one is not None and not one.frozen:
            self.crowd.leave(name)

    @rule(name=_NAMES)
    def break_(self, name: str) -> None:
        """A member can do nothing more in its round."""
        one = self.crowd.players.get(name)
        if one is not None and not one.frozen and not one.refused and one.at:
            one.halted = False
            self.crowd.broken(name)

    @rule(steps=st.integers(1, 12), ready=st.booleans())
    def pass_time(self, steps: int, ready: bool) -> None:
        """Up to 6 s."""
        self._run(steps, ready=ready)

    @precondition(lambda self: self.crowd.number)
    @rule()
    def restart(self) -> None:
        """The master dies, and another one serves."""
        self.crowd.restart()

    def teardown(self) -> None:
        """In the end all who can train train together, and nobody else."""
        crowd = self.crowd
        wanted: set[Who] = set()
        for _ in range(round(_END_S / 2)):
            self._run(4)
            wanted = set(crowd.live())
            if self._rests(wanted):
                break
        assert self._rests(wanted), (wanted, crowd.master.round, crowd.players, crowd.news[-9:])
        assert all(one.seen == crowd.number for one in crowd.live().values())

    def _rests(self, wanted: set[Who]) -> bool:
        round_ = self.crowd.master.round
        if not wanted:
            return True
        return round_.formed and {seat.who for seat in round_.seats} == wanted

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
