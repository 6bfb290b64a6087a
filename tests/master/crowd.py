"""Simulated members in virtual time around the master's rendezvous; they behave as the SDK's."""

from dataclasses import dataclass
from typing import Any

from edl.master.protocol import RoundView, parse_round
from edl_protocol.master import RendezvousPoll, RoundClaim, RoundMember

from master.membership import MemberId
from master.rendezvous import Rendezvous
from runtime.call_checks import Json, RefusedError

STEP_S = 0.05
POLL_S = 1.0
_AT_ONCE_S = float("-inf")
_NO_ROUND = RoundView(0, (), formed=False, probe=0, void=0)


def meet(trainer: str = "a", **changes: Any) -> RendezvousPoll:
    """The body of a call."""
    body = {"trainer": trainer, "incarnation": f"{trainer}-1", "address": f"{trainer}:1"}
    claim = changes.get("claim")
    if isinstance(claim, dict):
        members = [RoundMember(**member) for member in claim["members"]]
        changes["claim"] = RoundClaim(claim["round"], members)
    return RendezvousPoll(**{**body, "wait_s": POLL_S, **changes})


@dataclass
class Player:
    """One simulated process; its program enters each round that it receives."""

    trainer: str
    incarnation: str
    view: RoundView = _NO_ROUND
    """The newest round that it knows."""
    short: bool = False
    """Whether its calls leave out the members that the master knows."""
    at: int = 0
    ready: bool = False
    broken: bool = False
    waits_since_s: float | None = None
    frozen: bool = False
    halted: bool = False
    """Whether its program does nothing, although it polls."""
    has_left: bool = False
    busy: bool = False
    """Whether its program is busy; until that ends it enters no later round."""
    refused: str | None = None
    called_s: float = _AT_ONCE_S
    """When it sent the call that has no answer yet."""
    dropped: bool = False

    @property
    def member_id(self) -> MemberId:
        """Its trainer and incarnation."""
        return self.trainer, self.incarnation

    @property
    def seated(self) -> bool:
        """Whether it is in the newest round that it knows."""
        return self.view.rank_of(*self.member_id) is not None

    @property
    def newest_round(self) -> int:
        """The number of the newest round that it knows."""
        return self.view.round

    def call(self, now_s: float) -> RendezvousPoll:
        """The call that it would send now."""
        waits_s = 0.0 if self.waits_since_s is None else now_s - self.waits_since_s
        return meet(
            self.trainer,
            incarnation=self.incarnation,
            seen=self.newest_round,
            at=self.at,
            ready=self.ready,
            broken=self.broken,
            left=self.has_left,
            busy=self.busy,
            waiting_s=waits_s,
            probe=self.view.probe,
            **(self.view.reference(is_short=self.short) if self.seated else {}),
        )

    def receive(self, answer: Json) -> None:
        """Handles an answer."""
        self.dropped, self.short = answer["dropped"], not answer["claim"]
        if self.short:
            self.view = parse_round(answer).completed(self.view)

    def work(self) -> bool:
        """Lets its program continue; returns whether there is something to report."""
        if self.halted or self.busy or self.newest_round <= self.at:
            return False
        if not self.seated:
            was_broken, self.broken = self.broken, True
            return not was_broken
        self.at, self.ready, self.broken = self.newest_round, False, False
        self.waits_since_s = None
        return True


class Crowd:
    """Simulated members around one rendezvous, and a record of the events between them."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.now_s = 100.0
        self.master = Rendezvous(self.now_s, **settings)
        self.players: dict[str, Player] = {}
        self.count = 0
        self.events: list[tuple[float, str, Json]] = []

    # -- what happens ------------------------------------------------------------------------

    def arrive(self, *trainers: str, **about: Any) -> list[Player]:
        """Starts new processes."""
        arrived = []
        for trainer in trainers:
            self.count += 1
            player = Player(trainer, f"{trainer}-{self.count}", **about)
            self.players[trainer] = player
            arrived.append(player)
            self.speak(player)
        return arrived

    def speak(self, player: Player) -> None:
        """Sends a player's call, and delivers the answer if there is one at once."""
        call = player.call(self.now_s)
        player.called_s = self.now_s
        try:
            self.master.call(call, self.now_s)
        except RefusedError as error:
            player.refused = error.field
            return
        self._note()
        if self.master.has_answer(call):
            player.receive(self.master.answer(call))
            player.called_s = _AT_ONCE_S
            if not player.short:
                self.speak(player)  # the master has asked for its round
            elif player.newest_round == self.number:
                assert player.view.claim()["members"] == self.master.round.members

    def kill(self, trainer: str, *, disconnects: bool = True) -> None:
        """Kills a process; its connection is cut, unless its node died with it."""
        player = self.players.pop(trainer)
        if disconnects:
            self.master.disconnected(player.member_id, self.now_s)

    def leave(self, trainer: str) -> None:
        """A member reports that it leaves."""
        self.players[trainer].has_left = True
        self.master.leave(*self.players[trainer].member_id, self.now_s)
        self._note()

    def broken(self, *trainers: str) -> None:
        """Members report that they cannot continue in their round."""
        for trainer in trainers:
            self.players[trainer].broken = True
            self.speak(self.players[trainer])

    def restart(self) -> None:
        """Replaces the master's process."""
        self.master = Rendezvous(self.now_s, settles=True, **self.settings)
        for player in self.players.values():
            player.called_s = _AT_ONCE_S  # its connection was cut

    def run(self, seconds: float, *, ready: bool = True) -> None:
        """Lets time pass."""
        for _ in range(round(seconds / STEP_S)):
            self.now_s += STEP_S
            next_s = self.master.next_s()
            if next_s is not None and next_s <= self.now_s:
                self.master.tick(self.now_s)
                self._note()
            self.turn(ready=ready)

    def turn(self, *, ready: bool = True) -> None:
        """Lets each player act until no player has anything to do."""
        acting = True
        while acting:
            acting = False
            for player in list(self.players.values()):
                if not player.frozen and not player.refused and self._act(player, ready=ready):
                    acting = True

    def _act(self, player: Player, *, ready: bool) -> bool:
        has_news = player.work()
        if (
            ready
            and player.at
            and player.at == player.newest_round
            and not player.ready
            and not player.halted
        ):
            player.ready = has_news = True
        call = player.call(self.now_s)
        if has_news or self.master.has_answer(call) or self.now_s >= player.called_s + POLL_S:
            self.speak(player)
            return True
        return False

    # -- what is so --------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Trainers of the members of the round, by rank."""
        return [slot.trainer for slot in self.master.round.slots]

    @property
    def number(self) -> int:
        """The number of the round."""
        return self.master.round.number

    def until(self, number: int, max_s: float) -> float:
        """How long it takes until a round of this number or later is proclaimed."""
        begun_s = self.now_s
        while self.number < number:
            assert self.now_s < begun_s + max_s, (self.number, self.names)
            self.run(STEP_S)
        return self.now_s - begun_s

    def _note(self) -> None:
        for event, fields in self.master.events:
            self.events.append((self.now_s, event, fields))
            self.on_event(event, fields)
        self.master.events = []

    def on_event(self, event: str, fields: Json) -> None:
        """A hook for subclasses that check every event."""
