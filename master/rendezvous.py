"""Who trains together: the members of a synchronous job, round after round.

A round is a list of members, the oldest first: the place in it is the rank. Whenever members
come or go a later round is proclaimed, once for all changes of a moment. Pure: time is passed in,
and nothing is logged; `news` is what the caller may log. Not in the journal: after a restart the
members tell what round they are in.
"""

from dataclasses import dataclass
from typing import Any

from master.attendance import Member, Probe, Remembered, Seat, Who, earliest
from master.bounds import MOST_AHEAD, check_given
from master.errors import RefusedError

Json = dict[str, Any]

WINDOW_S = 0.2
"""A round is proclaimed so long after the last change ..."""
MOST_WINDOW_S = 1.0
"""... and so long after the first at most."""
SHORT_WINDOW_S = 0.05
"""Where all who are left wait for nothing else."""
FORMING_S = 60.0
"""Members that have not reached a round by then hold up all others: they are dropped. One that
has reached it may take as long as for a step."""
SETTLE_S = 3.0
"""How long a master that was restarted waits for somebody who knows the round."""
STUCK_S = 120.0
MOST_CLAIMED = 1 << 51
"""The newest round that a master that knows of none believes. Calls tell rounds up to 2^52."""


@dataclass(slots=True)
class Round:
    """Who trains together."""

    number: int
    seats: tuple[Seat, ...]
    since_s: float
    formed: bool = False
    """Whether all members were ready in it."""
    spoiled: bool = False
    """Whether all wait for each other."""
    _whos: frozenset[Who] = frozenset()

    def __post_init__(self) -> None:
        self._whos = frozenset(seat.who for seat in self.seats)

    def has(self, who: Who) -> bool:
        """Whether this process is in it."""
        return who in self._whos

    def is_of(self, whos: set[Who]) -> bool:
        """Whether these are in it, and nobody else."""
        return whos == self._whos


class Rendezvous:
    """Not thread-safe. Whoever calls a method with a time must call `tick` at `next_s`."""

    def __init__(self, now_s: float, *, settles: bool = False, stuck_s: float = STUCK_S) -> None:
        """Opens an empty one.

        Args:
            now_s: Of the clock of all other times.
            settles: Whether there may be members already, of the master before.
            stuck_s: Whoever lets others wait for longer is dropped.
        """
        self._stuck_s = stuck_s
        self._settled_s = now_s + (SETTLE_S if settles else 0.0)
        self._live: dict[str, Member] = {}
        """By trainer, the oldest first."""
        self.round = Round(0, (), now_s)
        self.void = 0
        """The newest round that can do nothing more."""
        self._inherited = False
        """Whether the round is the one of a master before."""
        self._floor = 0
        """The newest round anybody knows."""
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._probe = Probe()
        self._code: dict[str, str] | None = None
        """Of all members; None until one has told it."""
        self._replaced, self._left = Remembered(), Remembered()
        self._dropped = Remembered()
        """With the patience that it has when it comes again."""
        self._halted = Remembered()
        """Dropped because their main thread did nothing, with what it had done last."""
        self.news: list[tuple[str, Json]] = []
        """What happened, for the log; the caller empties it."""

    # -- what members say --------------------------------------------------------------------

    def call(self, call: Json, now_s: float) -> None:
        """A member says how it is; the answer comes from `answer`.

        Raises:
            RefusedError: It runs another program, was replaced by a newer process, or tells of a
                round that no master can have proclaimed.
        """
        who = call["trainer"], call["incarnation"]
        self._check_numbers(call)
        self._claim(call, now_s)
        if who in self._replaced:
            raise RefusedError(
                409, f"{who[0]} was started anew: another process has this name", "incarnation"
            )
        self._check_code(call)
        self._floor = max(self._floor, call["seen"], call["at"])
        member = self._live.get(who[0])
        if call["left"]:
            self.leave(*who, now_s)
            return
        if member is None or member.seat.who != who:
            if who in self._left or not self._moves(who, call):
                return
            member = self._arrive(call, now_s)
        could = self._usable(member)
        member.hear(call, self._probe.number, now_s)
        if could and not self._usable(member):
            self._break(now_s)
        if self.round.has(member.seat.who):
            self._look_at_waiting(member, now_s)
        self._advance(now_s)

    def leave(self, trainer: str, incarnation: str, now_s: float) -> None:
        """It is in no later round; it may call on, to hear of it."""
        member = self._live.get(trainer)
        self._left.add((trainer, incarnation))
        if member is not None and member.seat.incarnation == incarnation:
            del self._live[trainer]
            self._change(now_s)
            self._advance(now_s)

    def hung_up(self, trainer: str, incarnation: str, now_s: float) -> None:
        """Its connection was cut while it waited."""
        member = self._live.get(trainer)
        if member is not None and member.seat.incarnation == incarnation:
            member.hung_up_s = now_s

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        self._advance(now_s)

    # -- what they hear ----------------------------------------------------------------------

    def due(self, call: Json) -> bool:
        """Whether a call is to be answered without more waiting."""
        if self.round.number > call["seen"] or self._probe.number != call["probe"]:
            return True
        member = self._member(call)
        tells = self.round.formed and self.round.number == call["seen"]
        return tells and member is not None and member.told_formed != self.round.number

    def answer(self, call: Json) -> Json:
        """What a call gets now."""
        who = call["trainer"], call["incarnation"]
        member = self._member(call)
        if member is not None and self.round.formed:
            member.told_formed = self.round.number
        return {
            "round": self.round.number,
            "members": [seat._asdict() for seat in self.round.seats],
            "formed": self.round.formed,
            "probe": self._probe.number,
            "dropped": who in self._dropped and not self.round.has(who),
            "void": self.void,
        }

    def report(self) -> Json:
        """For the status."""
        ranks = [{"trainer": one.trainer, "rank": i} for i, one in enumerate(self.round.seats)]
        return {"round": self.round.number, "formed": self.round.formed, "members": ranks}

    def next_s(self) -> float | None:
        """When `tick` has something to do, if nobody calls before; None if never."""
        gone = (one.gone_s(self._probe) for one in self._live.values())
        late = (late_s for late_s, _ in self._holdups())
        return earliest((*gone, *late, self._due_s()))

    # -- inside: members ---------------------------------------------------------------------

    def _member(self, call: Json) -> Member | None:
        member = self._live.get(call["trainer"])
        return member if member and member.seat.incarnation == call["incarnation"] else None

    def _check_numbers(self, call: Json) -> None:
        """Later rounds are beyond every number that is believed, so none may be far beyond all others.

        A master that has just started knows of no round. It believes any claim up to 2^51, and a
        call with a claim tells no later round than the claim.
        """
        newest = max(self.round.number, self._floor)
        most = newest + MOST_AHEAD
        claim = call["claim"]
        if claim is not None:
            check_given("claim.round", claim["round"], most if newest else MOST_CLAIMED)
            most = max(most, claim["round"])
        for name in ("seen", "at"):
            check_given(name, call[name], most)

    def _check_code(self, call: Json) -> None:
        """The first member's code counts, while there is any."""
        told: dict[str, str] = call["code"]
        others = [one for name, one in self._live.items() if name != call["trainer"]]
        if not others or self._code is None:
            self._code = told
            return
        for name in sorted({*told, *self._code}):
            ours, theirs = self._code.get(name), told.get(name)
            if ours != theirs:
                raise RefusedError(
                    409,
                    f"code.{name} is {theirs!r:.80} with {call['trainer']}, but {ours!r:.80} with "
                    f"{others[0].seat.trainer} and all who train with it: start all trainers of "
                    "the job with the same program, or this one once the others have ended",
                    f"code.{name}",
                )

    def _moves(self, who: Who, call: Json) -> bool:
        """Whether it may come (again): not while its main thread does nothing."""
        done: object = self._halted.get(who)
        return done != (call["at"], call["ready"], call["broken"])

    def _arrive(self, call: Json, now_s: float) -> Member:
        seat = Seat(call["trainer"], call["incarnation"], call["address"])
        old = self._live.pop(seat.trainer, None)
        if old is not None:
            self._replaced.add(old.seat.who)
        patience = self._dropped.get(seat.who, 1.0)
        if seat.who in self._dropped:
            told = {"trainer": seat.trainer, "limits_times": patience}
            self.news.append(("dropped member is back: its limits are longer now", told))
        self._halted.forget(seat.who)
        member = self._live[seat.trainer] = Member(seat, now_s, patience)
        member.probe = self._probe.number
        self._change(now_s)
        return member

    def _drop(self, member: Member, why: str, now_s: float) -> None:
        seat = member.seat
        del self._live[seat.trainer]
        self._dropped.add(seat.who, member.patience * 2)
        self.news.append(("member was dropped", {"trainer": seat.trainer, "why": f"it {why}"}))
        self._change(now_s)

    def _halt(self, member: Member, why: str, now_s: float) -> None:
        """Its process lives, but its main thread does nothing: it may not come again like that."""
        at = member.at
        done = at, member.ready_at == at > 0, member.broken_at == at > 0
        self._halted.add(member.seat.who, done)
        self._drop(member, why, now_s)

    def _look_at_waiting(self, member: Member, now_s: float) -> None:
        waiting_s = member.waiting_s or 0.0
        self._probe.suspect(waiting_s, now_s)
        if waiting_s <= self._stuck_s or member.at < self.round.number:
            return
        usable = [one for one in self._here() if self._usable(one)]
        idle = [one for one in usable if one.waiting_s == 0 or one.at < self.round.number]
        if any(now_s <= one.busy_s + self._stuck_s for one in idle):
            return
        for one in idle:
            self._halt(one, f"let others wait for {waiting_s:.0f} s", now_s)
        if not idle and not self.round.spoiled:
            self.round.spoiled = True
            self._change(now_s)

    # -- inside: rounds ----------------------------------------------------------------------

    def _claim(self, call: Json, now_s: float) -> None:
        """Goes on with the round of a master before, where somebody knows it."""
        claim = call["claim"]
        if claim is None or claim["round"] <= self.round.number:
            return
        seats = tuple(Seat(**one) for one in claim["members"])
        mine = (call["trainer"], call["incarnation"]) in {seat.who for seat in seats}
        if not mine or (self.round.number and not self._inherited):
            return
        known, self._live = self._live, {}
        for seat in seats:
            newer = known.get(seat.trainer)
            if newer is not None and newer.seat.who != seat.who:
                self._replaced.add(seat.who)  # it has called itself
            elif seat.who not in self._left and seat.who not in self._replaced:
                self._live[seat.trainer] = newer or Member(seat, now_s)
        self._live |= {name: one for name, one in known.items() if name not in self._live}
        self.round = Round(claim["round"], seats, now_s)
        self._inherited = True
        self.news.append(("round goes on", {"round": claim["round"], "members": len(seats)}))

    def _here(self) -> list[Member]:
        """Members of the round that are there."""
        found = (self._live.get(seat.trainer) for seat in self.round.seats)
        return [one for one in found if one is not None and self.round.has(one.seat.who)]

    def _usable(self, member: Member) -> bool:
        """Whether it can do something in the round."""
        return member.broken_at < self.round.number or not self.round.has(member.seat.who)

    def _impossible(self) -> bool:
        """Whether the round can do nothing more."""
        here = self._here()
        if self.round.spoiled or not all(map(self._usable, here)):
            return True
        there = {one.seat.who for one in here}
        gone = (seat.who for seat in self.round.seats if seat.who not in there)
        if self.round.formed:  # who leaves stays until the next one
            return any(who not in self._left for who in gone)
        return any(True for _ in gone)

    def _differs(self) -> bool:
        return not self.round.is_of({one.seat.who for one in self._live.values()})

    def _holdups(self) -> list[tuple[float, Member]]:
        """Members for which a forming round still waits, and until when it does."""
        round_ = self.round
        if round_.formed:
            return []
        found = [
            (max(round_.since_s, one.busy_s) + FORMING_S, one)
            for one in self._here()
            if one.at < round_.number
        ]
        if not all(round_.has(one.seat.who) for one in self._live.values()):
            most_s = max(FORMING_S, self._stuck_s)
            here = [one for one in self._here() if one.at >= round_.number > one.ready_at]
            found += [
                (max(round_.since_s, one.busy_s) + most_s, one)
                for one in here
                if self._usable(one) and not one.waiting_s
            ]
        return found

    def _change(self, now_s: float) -> None:
        self._first_s = now_s if self._first_s is None else self._first_s
        self._last_s = now_s

    def _break(self, now_s: float) -> None:
        """A member can do nothing more in the round: if it is the first, look who is gone."""
        broken = [one for one in self._here() if not self._usable(one)]
        if len(broken) == 1:
            self._probe.want()
            self._change(now_s)

    def _advance(self, now_s: float) -> None:
        for one in list(self._live.values()):
            if one.gone_s(self._probe) <= now_s:
                self._drop(one, one.why(self._probe, now_s), now_s)
        for late_s, one in self._holdups():
            if late_s <= now_s:
                self._halt(one, f"was not ready for round {self.round.number}", now_s)
        self._probe.advance(self._live.values(), now_s)
        self._form()
        impossible = self._impossible()
        if impossible:
            self.void = self.round.number
        if not impossible and not self._differs():
            self._first_s = self._last_s = None
        elif self._first_s is None:
            self._change(now_s)
        due_s = self._due_s()
        if due_s is not None and due_s <= now_s:
            self._proclaim(now_s)

    def _form(self) -> None:
        round_ = self.round
        here = self._here()
        if round_.formed or not here or len(here) < len(round_.seats):
            return
        if all(one.ready_at >= round_.number and self._usable(one) for one in here):
            round_.formed = True
            self.news.append(("round has formed", {"round": round_.number}))

    def _due_s(self) -> float | None:
        """When the next round is to be proclaimed; None where something else must come first."""
        if self._first_s is None or self._last_s is None or not self._live:
            return None
        impossible = self._impossible()
        forming = bool(self.round.number) and not self.round.formed
        if self._probe.under_way or (forming and not impossible):
            return None
        due_s = min(self._last_s + WINDOW_S, self._first_s + MOST_WINDOW_S)
        if impossible and self._all_idle():
            due_s = min(due_s, self._last_s + SHORT_WINDOW_S)
        return due_s if self.round.number else max(due_s, self._settled_s)

    def _all_idle(self) -> bool:
        """Whether there are no newcomers, and all others can do nothing, or wait for somebody."""
        old = all(self.round.has(one.seat.who) for one in self._live.values())
        return old and all(one.waiting_s or not self._usable(one) for one in self._here())

    def _proclaim(self, now_s: float) -> None:
        number = max(self.round.number, self._floor) + 1
        self.round = Round(number, tuple(one.seat for one in self._live.values()), now_s)
        self._inherited = False
        self._first_s = self._last_s = None
        names = [seat.trainer for seat in self.round.seats]
        self.news.append(("round proclaimed", {"round": number, "trainers": names}))
