"""A rendezvous in memory: rounds without windows, time-outs and probes of their own.

Like tests/sdk/books.py it is there for tests that decide themselves what happens when; the facts
in tests/sdk/contract_meetings.py hold it to the real one.
"""

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


class OtherError(Exception):
    """Another program, or a process that was replaced."""

    def __init__(self, message: str, named: str) -> None:
        super().__init__(message)
        self.named = named


@dataclass
class Seated:
    """A member."""

    shown: Json
    ready: int = 0
    broken: int = 0


@dataclass
class Meeting:
    """Of one master."""

    members: dict[str, Seated] = field(default_factory=dict)
    code: Json | None = None
    round: int = 0
    seats: list[Json] = field(default_factory=list)
    probe: int = 0
    void: int = 0
    known: int = 0
    left: set[tuple[str, str]] = field(default_factory=set)
    old: set[tuple[str, str]] = field(default_factory=set)
    told: set[tuple[str, int]] = field(default_factory=set)
    """Who knows of which round that it has formed."""

    # -- what tests do -----------------------------------------------------------------------

    def ask_all(self) -> None:
        """A probe: all calls are to come back at once."""
        self.probe += 1

    def drop(self, trainer: str) -> None:
        """A member was not heard for too long."""
        del self.members[trainer]
        self._advance()

    # -- the protocol ------------------------------------------------------------------------

    def call(self, body: Json) -> None:
        """POST /v1/rendezvous, before its answer."""
        name, who = body["trainer"], (body["trainer"], body["incarnation"])
        self._claim(body)
        if who in self.old:
            raise OtherError(f"{name} was started anew", "incarnation")
        self.known = max(self.known, body["seen"], body["at"])
        if body["left"]:
            self.leave(body)
        if who in self.left:
            return
        self._check(body)
        member = self.members.get(name)
        if member is None or _who(member.shown) != who:
            if member is not None:
                self.old.add(_who(self.members.pop(name).shown))
            shown = {key: body[key] for key in ("trainer", "incarnation", "address")}
            member = self.members[name] = Seated(shown)
        member.ready = max(member.ready, body["at"] if body["ready"] else 0)
        member.broken = max(member.broken, body["at"] if body["broken"] else 0)
        self._advance()

    def leave(self, body: Json) -> Json:
        """POST /v1/rendezvous/leave."""
        who = body["trainer"], body["incarnation"]
        self.left.add(who)
        member = self.members.get(who[0])
        if member is not None and _who(member.shown) == who:
            del self.members[who[0]]
            self._advance()
        return {}

    def due(self, body: Json) -> bool:
        """Whether there is news for a call."""
        if self.round > body["seen"] or self.probe != body["probe"]:
            return True
        return self.formed and (body["trainer"], self.round) not in self.told

    def answer(self, body: Json) -> Json:
        """What a call gets now."""
        if self.formed:
            self.told.add((body["trainer"], self.round))
        return {
            "round": self.round,
            "members": self.seats,
            "formed": self.formed,
            "probe": self.probe,
            "dropped": False,
            "void": self.void,
        }

    @property
    def formed(self) -> bool:
        """Whether all members are ready."""
        return bool(self._here) and all(one.ready >= self.round for one in self._here)

    # -- inside ------------------------------------------------------------------------------

    @property
    def _here(self) -> list[Seated]:
        return [one for one in self.members.values() if one.shown in self.seats]

    def _check(self, body: Json) -> None:
        others = [name for name in self.members if name != body["trainer"]]
        if not others or self.code is None:
            self.code = body["code"]
        for name in sorted({*self.code, *body["code"]}):
            if self.code.get(name) != body["code"].get(name):
                raise OtherError(f"another {name} than {others[0]}'s", f"code.{name}")

    def _claim(self, body: Json) -> None:
        claim = body["claim"]
        if claim and not self.round:
            self.round, self.seats = claim["round"], claim["members"]
            claimed = {one["trainer"]: Seated(one) for one in self.seats}
            self.members = {**claimed, **self.members}

    def _advance(self) -> None:
        gone = len(self._here) < len(self.seats)
        broken = any(one.broken >= self.round > 0 for one in self._here)
        if gone or broken:
            self.void = self.round
        differs = gone or len(self._here) < len(self.members)
        if not self.members or not (differs or broken):
            return
        if not self.round or self.formed or gone or broken:
            self.round = max(self.round, self.known) + 1
            self.seats = [one.shown for one in self.members.values()]


def _who(shown: Json) -> tuple[str, str]:
    return shown["trainer"], shown["incarnation"]
