"""Random changes to a fleet, one after the other, each until all members train together again."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

from edl import clock

from tests.sdk.sync.fleets import Fleet, Member

Json = dict[str, Any]
LOSSES = {"term": signal.SIGTERM, "kill": signal.SIGKILL, "stop": signal.SIGSTOP}
HANG_S = 180.0
_START_S, _FINISH_S = 180.0, 240.0
_LEAST = 3
_MASTER_EVERY = 25
_BEFORE_S = 1.0
_PAUSE_S = (0.0, 0.4)


@dataclass(frozen=True)
class Change:
    """A change, and the time until every member had made a step in the round after it."""

    kind: str
    took_s: float
    """From the change; where trainers were started, from the last arrival."""
    start_s: float
    """From the change to the last arrival of a started trainer."""
    pause_s: float
    """The longest time in it without a step of any member."""
    world_size: int
    rank_0: bool
    """Whether the member of rank 0 was lost in it."""


@dataclass
class Storm:
    """Random changes to a fleet of at most `size` trainers.

    The first two of the last `begin` are at worst frozen.
    """

    fleet: Fleet
    size: int
    chance: Random
    changes: list[Change] = field(default_factory=list)
    figures: list[list[Json]] = field(default_factory=list)
    """Of the first two members, whenever `measure` was called."""
    _first: Sequence[Member] = ()

    def begin(self, spares: int = 0) -> None:
        """Starts all trainers, and some to be let in later; waits until they train together."""
        began_s = clock.monotonic_s()
        self._first = [self.fleet.add() for _ in range(self.size)][:2]
        for _ in range(spares):
            self.fleet.hold()
        go = self.fleet.options.get("go")
        if go is not None:
            assert self.fleet.until(self._all_ready, _START_S)
            Path(go).touch()
        self._settle([_Act("start")], began_s, _START_S)

    def blow(self, changes: int) -> None:
        """Makes that many changes."""
        for number in range(1, changes + 1):
            Event().wait(self.chance.uniform(*_PAUSE_S))
            if number % _MASTER_EVERY == 0:
                self.lose_master(self._sometimes_one())
            else:
                self._change()

    def measure(self) -> None:
        """Records the resources that the first two members use now."""
        self.figures.append([member.figures() for member in self._first])

    def finish(self, hurry: Path, limit_s: float = _FINISH_S) -> list[Member]:
        """Thaws all, and waits for the job's end; returns the members that were active."""
        for member in self.fleet.members:
            if member.lives and member.frozen:
                member.send(signal.SIGCONT)
        hurry.touch()
        members = self.fleet.active()
        assert self.fleet.ended(members, limit_s), _positions(members)
        return members

    def longest_gap_s(self) -> float:
        """The longest time without a step of any member."""
        return self._gap_s(0.0, float("inf"))

    # -- one change, and until all train again -----------------------------------------------

    def lose(self, victim: Member, kind: str) -> None:
        """Sends a member one of the signals in `LOSSES`."""
        began_s = clock.monotonic_s()
        act = self._lose(victim, kind)
        self._settle([act], began_s)

    def grow(self) -> None:
        """Adds a trainer: a held one, if there is any."""
        began_s = clock.monotonic_s()
        spares = [member for member in self.fleet.members if member.spare]
        if spares:
            self.fleet.let_in(spares[0])
        else:
            self.fleet.add()
        self._settle([_Act("grow")], began_s)

    def thaw(self, member: Member) -> None:
        """Thaws a frozen trainer."""
        began_s = clock.monotonic_s()
        member.send(signal.SIGCONT)
        self._settle([_Act("thaw")], began_s)

    def lose_master(self, victim: Member | None = None) -> None:
        """Kills and restarts the master, and kills a trainer while the master is away."""
        began_s = clock.monotonic_s()
        self.fleet.kill_master()
        acts = [_Act("master")]
        if victim is not None:
            acts.append(self._lose(victim, "kill"))
        self.fleet.start_master()
        self._settle(acts, began_s)

    # -- inside ------------------------------------------------------------------------------

    def _change(self) -> None:
        """One change, or two at the same moment."""
        began_s = clock.monotonic_s()
        acts = [self._act() for _ in range(self.chance.choice([1, 1, 1, 2]))]
        self._settle(acts, began_s)

    def _act(self) -> "_Act":
        active = self.fleet.active()
        frozen = [member for member in self.fleet.members if member.lives and member.frozen]
        kinds = ["grow"] * 3 if len(active) + len(frozen) < self.size else []
        kinds += LOSSES if len(active) > _LEAST else ()
        kinds += ["thaw"] if frozen else ()
        kind = self.chance.choice(kinds or ["grow"])
        if kind in LOSSES:
            return self._lose(self._victim(kind), kind)
        if kind == "grow":
            self.fleet.add()
        else:
            self.chance.choice(frozen).send(signal.SIGCONT)
        return _Act(kind)

    def _victim(self, kind: str) -> Member:
        """Rank 0 in a third of the cases; the first two members are at worst frozen."""
        ranked = self.fleet.ranked()  # of a round that began just now, some have no step yet
        mortal = [
            member for member in self.fleet.active() if kind == "stop" or member not in self._first
        ]
        if ranked and ranked[0] in mortal and self.chance.random() < 1 / 3:
            return ranked[0]
        return self.chance.choice(mortal)

    def _lose(self, victim: Member, kind: str) -> "_Act":
        ranked = self.fleet.ranked()
        first = bool(ranked) and victim is ranked[0]
        victim.send(LOSSES[kind])
        if kind != "stop":
            self.fleet.ended([victim], HANG_S)
        return _Act(kind, first)

    def _sometimes_one(self) -> Member | None:
        if self.chance.random() < 1 / 2 and len(self.fleet.active()) > _LEAST:
            return self._victim("kill")
        return None

    def _settle(self, acts: Sequence["_Act"], began_s: float, timeout_s: float = HANG_S) -> None:
        members, kinds = self.fleet.active(), " and ".join(act.kind for act in acts)
        steps = self.fleet.together(members, began_s, timeout_s)
        assert steps is not None, f"{kinds} hangs ({self.fleet.folder}): {_positions(members)}"
        come_s = max([began_s, *(member.arrived_s for member in members)])
        ended_s = max(step["at_s"] for step in steps)
        self.changes.append(
            Change(
                kinds,
                ended_s - come_s,
                come_s - began_s,
                self._gap_s(began_s - _BEFORE_S, ended_s),
                len(members),
                any(act.first for act in acts),
            )
        )

    def _gap_s(self, from_s: float, to_s: float) -> float:
        steps = [step for member in self.fleet.members for step in member.steps]
        times = sorted(float(s["at_s"]) for s in steps if from_s <= s["at_s"] <= to_s)
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    def _all_ready(self) -> bool:
        for member in self.fleet.members:
            member.look()
        return all(member.ready for member in self.fleet.members)


@dataclass(frozen=True)
class _Act:
    kind: str
    first: bool = False
    """Whether it was the member of rank 0."""


def micros_of(members: Sequence[Member]) -> dict[tuple[int, int], set[int]]:
    """Maps step and index in it to the checksums of the records it was computed from."""
    digests: dict[tuple[int, int], set[int]] = {}
    for step in (step for member in members for step in member.steps):
        for number, index, digest in step["micros"]:
            digests.setdefault((number, index), set()).add(digest)
    return digests


def times_of(members: Sequence[Member], place: tuple[int, int]) -> list[str]:
    """Formats when each member computed the micro-batch of a step and index, and in which round."""
    return [
        f"{member.name} round {step['round']} of {step['world']} at {step['at_s']:.2f} s: {digest}"
        for member in members
        for step in member.steps
        for number, index, digest in step["micros"]
        if (number, index) == place
    ]


def _positions(members: Sequence[Member]) -> str:
    """Formats the position of each member, for failure messages."""
    now_s = clock.monotonic_s()
    texts = []
    for member in members:
        last = (
            member.steps[-1] if member.steps else {"step": 0, "round": 0, "world": 0, "at_s": now_s}
        )
        ago_s = now_s - last["at_s"]
        texts.append(
            f"{member.name} round {last['round']} of {last['world']}, "
            f"step {last['step']} {ago_s:.1f} s ago"
        )
    return "; ".join(texts)
