"""A rendezvous in memory: rounds without windows, time-outs and probes of their own.

Like tests/sdk/support/fake_master.py it is for tests that decide when things happen; the facts in
tests/sdk/support/contract_rendezvous.py hold it to the real one.
"""

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


class OtherError(Exception):
    """The caller runs another program, or its process was replaced."""

    def __init__(self, message: str, named: str) -> None:
        super().__init__(message)
        self.named = named


@dataclass
class Slot:
    """A member's slot in the rendezvous."""

    entry: Json
    ready: int = 0
    broken: int = 0


@dataclass
class FakeRendezvous:
    """The rendezvous of one fake master."""

    members: dict[str, Slot] = field(default_factory=dict)
    code: Json | None = None
    round: int = 0
    slots: list[Json] = field(default_factory=list)
    probe: int = 0
    void: int = 0
    highest_round: int = 0
    left_ids: set[tuple[str, str]] = field(default_factory=set)
    replaced: set[tuple[str, str]] = field(default_factory=set)
    informed: set[tuple[str, int]] = field(default_factory=set)
    """Trainers that know of a round that it has formed: name and number."""

    # -- what tests do -----------------------------------------------------------------------

    def ask_all(self) -> None:
        """Begins a probe: all waiting calls return at once."""
        self.probe += 1

    def drop(self, trainer: str) -> None:
        """Drops a member, as after missing calls."""
        del self.members[trainer]
        self._advance()

    # -- the protocol ------------------------------------------------------------------------

    def call(self, body: Json) -> None:
        """POST /v1/rendezvous, before its answer."""
        name, who = body["trainer"], (body["trainer"], body["incarnation"])
        self._claim(body)
        if who in self.replaced:
            raise OtherError(f"{name} was started anew", "incarnation")
        self.highest_round = max(self.highest_round, body["seen"], body["at"])
        if body["left"]:
            self.leave(body)
        if who in self.left_ids:
            return
        self._check(body)
        member = self.members.get(name)
        if member is None or _identity(member.entry) != who:
            if member is not None:
                self.replaced.add(_identity(self.members.pop(name).entry))
            entry = {key: body[key] for key in ("trainer", "incarnation", "address")}
            member = self.members[name] = Slot(entry)
        member.ready = max(member.ready, body["at"] if body["ready"] else 0)
        member.broken = max(member.broken, body["at"] if body["broken"] else 0)
        self._advance()

    def leave(self, body: Json) -> Json:
        """POST /v1/rendezvous/leave."""
        who = body["trainer"], body["incarnation"]
        self.left_ids.add(who)
        member = self.members.get(who[0])
        if member is not None and _identity(member.entry) == who:
            del self.members[who[0]]
            self._advance()
        return {}

    def due(self, body: Json) -> bool:
        """Whether a waiting call must return."""
        if self.round > body["seen"] or self.probe != body["probe"]:
            return True
        return self.formed and (body["trainer"], self.round) not in self.informed

    def answer(self, body: Json) -> Json:
        """The answer to a call now."""
        if self.formed:
            self.informed.add((body["trainer"], self.round))
        return {
            "round": self.round,
            "members": self.slots,
            "formed": self.formed,
            "probe": self.probe,
            "dropped": False,
            "void": self.void,
        }

    @property
    def formed(self) -> bool:
        """Whether all members are ready."""
        return bool(self._present_members) and all(
            member.ready >= self.round for member in self._present_members
        )

    # -- inside ------------------------------------------------------------------------------

    @property
    def _present_members(self) -> list[Slot]:
        return [member for member in self.members.values() if member.entry in self.slots]

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
            self.round, self.slots = claim["round"], claim["members"]
            claimed = {slot["trainer"]: Slot(slot) for slot in self.slots}
            self.members = {**claimed, **self.members}

    def _advance(self) -> None:
        lost = len(self._present_members) < len(self.slots)
        broken = any(member.broken >= self.round > 0 for member in self._present_members)
        if lost or broken:
            self.void = self.round
        differs = lost or len(self._present_members) < len(self.members)
        if not self.members or not (differs or broken):
            return
        if not self.round or self.formed or lost or broken:
            self.round = max(self.round, self.highest_round) + 1
            self.slots = [member.entry for member in self.members.values()]


def _identity(entry: Json) -> tuple[str, str]:
    return entry["trainer"], entry["incarnation"]
