"""Members that behave as the SDK's do, in virtual time, around the master's rendezvous."""

from dataclasses import dataclass, field
from typing import Any

from master.attendance import Who
from master.errors import RefusedError
from master.rendezvous import Rendezvous

Json = dict[str, Any]
STEP_S = 0.05
POLL_S = 1.0
_AT_ONCE_S = float("-inf")


def meet(trainer: str = "a", **changes: Any) -> Json:
    """The body of a call, as the protocol hands it on."""
    found: Json = {
        "trainer": trainer,
        "incarnation": f"{trainer}-1",
        "address": f"{trainer}:1",
        "code": {},
        "seen": 0,
        "at": 0,
        "ready": False,
        "broken": False,
        "left": False,
        "busy": False,
        "waiting_s": 0.0,
        "probe": 0,
        "claim": None,
        "wait_s": POLL_S,
    }
    return {**found, **changes}


@dataclass
class Player:
    """One process; its program enters each round it hears of."""

    trainer: str
    incarnation: str
    seen: int = 0
    members: list[Json] = field(default_factory=list)
    at: int = 0
    ready: bool = False
    broken: bool = False
    formed: bool = False
    probe: int = 0
    waits_since_s: float | None = None
    frozen: bool = False
    halted: bool = False
    """Its polls go on, but its program does nothing."""
    left: bool = False
    busy: bool = False
    """Its program does something that takes its time, and is in no later round until it ends."""
    refused: str | None = None
    called_s: float = _AT_ONCE_S
    """When it called last, if that call has no answer yet."""
    dropped: bool = False

    @property
    def who(self) -> Who:
        """Which process it is."""
        return self.trainer, self.incarnation

    @property
    def seated(self) -> bool:
        """Whether it is in the newest round that it knows."""
        return self.who in {(one["trainer"], one["incarnation"]) for one in self.members}

    def call(self, now_s: float) -> Json:
        """What it would say now."""
        waits_s = 0.0 if self.waits_since_s is None else now_s - self.waits_since_s
        claim = {"round": self.seen, "members": self.members} if self.seated else None
        return meet(
            self.trainer,
            incarnation=self.incarnation,
            seen=self.seen,
            at=self.at,
            ready=self.ready,
            broken=self.broken,
            left=self.left,
            busy=self.busy,
            waiting_s=waits_s,
            probe=self.probe,
            claim=claim,
        )

    def hear(self, answer: Json) -> None:
        """It got an answer."""
        self.probe, self.dropped = answer["probe"], answer["dropped"]
        if answer["round"] >= self.seen:
            self.seen, self.members = answer["round"], answer["members"]
            self.formed = answer["formed"]

    def work(self) -> bool:
        """Its program goes on; whether there is something to tell."""
        if self.halted or self.busy or self.seen <= self.at:
            return False
        if not self.seated:
            told, self.broken = self.broken, True
            return not told
        self.at, self.ready, self.broken = self.seen, False, False
        self.waits_since_s = None
        return True


class Crowd:
    """Players and a master, and what happened between them."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.now_s = 100.0
        self.master = Rendezvous(self.now_s, **settings)
        self.players: dict[str, Player] = {}
        self.count = 0
        self.news: list[tuple[float, str, Json]] = []

    # -- what happens ------------------------------------------------------------------------

    def arrive(self, *trainers: str, **about: Any) -> list[Player]:
        """New processes begin."""
        made = []
        for trainer in trainers:
            self.count += 1
            one = Player(trainer, f"{trainer}-{self.count}", **about)
            self.players[trainer] = one
            made.append(one)
            self.speak(one)
        return made

    def speak(self, one: Player) -> None:
        """It calls, and has its answer if there is one at once."""
        call = one.call(self.now_s)
        one.called_s = self.now_s
        try:
            self.master.call(call, self.now_s)
        except RefusedError as error:
            one.refused = error.named
            return
        self._note()
        if self.master.due(call):
            one.hear(self.master.answer(call))
            one.called_s = _AT_ONCE_S

    def kill(self, trainer: str, *, heard: bool = True) -> None:
        """A process dies; its connection is cut, unless its node died with it."""
        one = self.players.pop(trainer)
        if heard:
            self.master.hung_up(*one.who, self.now_s)

    def leave(self, trainer: str) -> None:
        """It says that it leaves."""
        self.players[trainer].left = True
        self.master.leave(*self.players[trainer].who, self.now_s)
        self._note()

    def broken(self, *trainers: str) -> None:
        """They can do nothing more in their round."""
        for trainer in trainers:
            self.players[trainer].broken = True
            self.speak(self.players[trainer])

    def restart(self) -> None:
        """The master's process is another one."""
        self.master = Rendezvous(self.now_s, settles=True, **self.settings)
        for one in self.players.values():
            one.called_s = _AT_ONCE_S  # its connection was cut

    def run(self, seconds: float, *, ready: bool = True) -> None:
        """Time passes."""
        for _ in range(round(seconds / STEP_S)):
            self.now_s += STEP_S
            next_s = self.master.next_s()
            if next_s is not None and next_s <= self.now_s:
                self.master.tick(self.now_s)
                self._note()
            self.turn(ready=ready)

    def turn(self, *, ready: bool = True) -> None:
        """Everybody who can does what there is to do, until nothing is left."""
        acting = True
        while acting:
            acting = False
            for one in list(self.players.values()):
                if not one.frozen and not one.refused and self._act(one, ready=ready):
                    acting = True

    def _act(self, one: Player, *, ready: bool) -> bool:
        tells = one.work()
        if ready and one.at and one.at == one.seen and not one.ready and not one.halted:
            one.ready = tells = True
        call = one.call(self.now_s)
        if tells or self.master.due(call) or self.now_s >= one.called_s + POLL_S:
            self.speak(one)
            return True
        return False

    # -- what is so --------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Members of the round, by rank."""
        return [seat.trainer for seat in self.master.round.seats]

    @property
    def number(self) -> int:
        """Of the round."""
        return self.master.round.number

    def until(self, number: int, most_s: float) -> float:
        """How long it takes until a round of this number or later is proclaimed."""
        begun_s = self.now_s
        while self.number < number:
            assert self.now_s < begun_s + most_s, (self.number, self.names)
            self.run(STEP_S)
        return self.now_s - begun_s

    def _note(self) -> None:
        for event, told in self.master.news:
            self.news.append((self.now_s, event, told))
            self.happened(event, told)
        self.master.news = []

    def happened(self, event: str, told: Json) -> None:
        """For those who look at everything."""
