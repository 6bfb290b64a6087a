"""The rendezvous of a synchronous job: its members agree on rounds.

A round is a list of members, the oldest first: the index in it is the rank. Whenever members
come or go a later round is proclaimed, one for all changes of a moment. Pure: time is passed in,
and nothing is logged; the caller may log `events`. Not in the journal: after a restart the members
report their round.
"""

from edl_protocol.master import RendezvousPoll

from master.change_window import SHORT_WINDOW_S, VOID_WINDOW_S, WINDOW_S, ChangeWindow
from master.member_checks import check_code, check_numbers
from master.membership import (
    PROBE_S,
    Member,
    MemberId,
    Probe,
    Slot,
    earliest,
    poll_pace_s,
    suspicious_s,
)
from master.past_members import PastMembers
from master.round import FORMING_S, Round, RoundHistory
from master.types import Json
from runtime.call_checks import RefusedError

SETTLE_S = 3.0
"""How long a restarted master waits for a member that knows the round."""
STUCK_S = 120.0


class Rendezvous:
    """The members of a job and their newest round. Not thread-safe.

    After each method that takes a time, the caller must call `tick` at `next_s`.
    """

    def __init__(self, now_s: float, *, settles: bool = False, stuck_s: float = STUCK_S) -> None:
        """Makes a rendezvous without members.

        Args:
            now_s: The time, of the same clock as all others.
            settles: Whether members of a previous master may exist.
            stuck_s: A member that lets others wait for longer is dropped.
        """
        self._stuck_s = stuck_s
        self._settled_s = now_s + (SETTLE_S if settles else 0.0)
        self._live: dict[str, Member] = {}
        """Live members by trainer, the oldest first."""
        self.round, self._history = Round(0, (), now_s), RoundHistory()
        self.void = 0
        """The newest round that cannot continue."""
        self.inherited = False
        """Whether the round is one of a previous master."""
        self._floor = 0
        """The newest round that any member has reported."""
        self._window = ChangeWindow()
        self._advanced_s = now_s
        self._deadline_s = float("inf")
        """No member counts as dead before this time, unless something is noted that changes it."""
        self._composition_changed = True
        self.changes = 0
        """Grows with each call that others may have to know of, or that changes what is due."""
        self._probe = Probe()
        self._code: dict[str, str] | None = None
        """The code of all members; None until one has reported it."""
        self._past = PastMembers()
        self.events: list[tuple[str, Json]] = []
        """What happened, for the log; the caller empties it."""

    # -- calls of members --------------------------------------------------------------------

    def call(self, call: RendezvousPoll, now_s: float) -> None:
        """Updates the rendezvous by a member's call; `answer` makes the answer.

        Raises:
            RefusedError: The member runs another program, was replaced by a newer process, or
                reports a round that no master can have proclaimed.
        """
        if self._lacks_claim(call):
            return
        member_id = call.trainer, call.incarnation
        check_numbers(call, max(self.round.number, self._floor))
        self._adopt_claim(call, now_s)
        if member_id in self._past.replaced:
            raise RefusedError(
                409, f"{member_id[0]} was restarted: another process has this name", "incarnation"
            )
        self._check_code(call)
        self._record_rounds(call)
        member = self._live.get(member_id[0])
        if call.left:
            self.leave(*member_id, now_s)
            return
        if member is None or member.slot.member_id != member_id:
            if not self._past.may_enter(call):
                return
            member = self._add_member(call, now_s)
        elif not (member.has_news(call) or self._probe.awaits(member)):
            member.record_call(call, self._probe.number, now_s)
            return  # it is alive, and nothing else: most calls of a large job are such
        was_usable = self.round.is_usable(member)
        member.record_call(call, self._probe.number, now_s)
        if member.probe == self._probe.number:
            self._probe.record_answer(call.trainer, now_s)
        self._expect_silence(member)
        if was_usable and not self.round.is_usable(member):
            self._note_broken(now_s)
        if self.round.has(member_id):
            self._check_waiting(member, now_s)
        self._advance(now_s)

    def leave(self, trainer: str, incarnation: str, now_s: float) -> None:
        """Excludes a member from later rounds; it may keep polling."""
        member = self._live.get(trainer)
        self._past.left[trainer, incarnation] = None
        if member is not None and member.slot.incarnation == incarnation:
            self._remove(member, now_s)
            self._advance(now_s)

    def disconnected(
        self, trainer: str, incarnation: str, since_s: float, *, has_ended: bool = False
    ) -> None:
        """Notes that a member's connection was cut while it waited; `has_ended`: the other one, too."""
        member = self._live.get(trainer)
        if member is not None and member.slot.incarnation == incarnation:
            member.disconnected_s, member.has_ended = since_s, has_ended
            self._expect_silence(member)

    def tick(self, now_s: float) -> None:
        """Does what is due by now; nobody is dropped for silence before this call."""
        self._drop_silent(now_s)
        self._advance(now_s)

    @property
    def news(self) -> tuple[int, bool, int, int]:
        """What waiting calls wait for: it differs whenever one of them may have an answer."""
        return self.round.number, self.round.formed, self._probe.number, self.void

    @property
    def is_probing(self) -> bool:
        """Whether members have not answered the probe in progress."""
        return bool(self._probe.awaited)

    def awaited(self) -> list[MemberId]:
        """The members that have not answered the probe in progress."""
        return [self._live[name].slot.member_id for name in self._probe.awaited]

    # -- answers -----------------------------------------------------------------------------

    def has_answer(self, call: RendezvousPoll) -> bool:
        """Whether a call is to be answered without more waiting."""
        is_older = self.round.number > call.seen or self._probe.number != call.probe
        knows_void = call.void is None or call.void >= self.void
        if is_older or not knows_void or self._lacks_claim(call):
            return True
        member = self._member(call)
        has_formed = self.round.formed and self.round.number == call.seen
        return has_formed and member is not None and member.formed_sent != self.round.number

    def answer(self, call: RendezvousPoll) -> Json:
        """The answer to a call now."""
        member_id = call.trainer, call.incarnation
        member = self._member(call)
        if member is not None and self.round.formed:
            member.formed_sent = self.round.number
        return {
            "round": self.round.number,
            **self._history.members(self.round, call.seen if call.known else None),
            "formed": self.round.formed,
            "probe": self._probe.number,
            "dropped": self._past.was_dropped(member_id) and not self.round.has(member_id),
            "void": self.void,
            "claim": self._lacks_claim(call),
            "wait_s": poll_pace_s(len(self._live)),
            "suspicious_s": suspicious_s(self.round.rank_of(member_id) or 0),
        }

    def report(self) -> Json:
        """The round as the status contains it."""
        return self.round.report()

    def next_s(self) -> float | None:
        """When `tick` has something to do, if no member calls before; None if never."""
        return earliest((self._deadline_s if self._live else None, self._holdup_s(), self._due_s()))

    # -- inside: members ---------------------------------------------------------------------

    def _member(self, call: RendezvousPoll) -> Member | None:
        member = self._live.get(call.trainer)
        return member if member and member.slot.incarnation == call.incarnation else None

    def _lacks_claim(self, call: RendezvousPoll) -> bool:
        """Whether a call is of a round that this master, which has just started, does not know.

        It is answered at once and changes nothing: the next one has the claim.
        """
        return call.known and call.claim is None and call.seen > self.round.number

    def _expect_silence(self, member: Member) -> None:
        """Notes that the time limit of a member may have changed."""
        deadline_s = min(member.deadline_s(self._probe), self._probe.next_end_s)
        self._deadline_s = min(self._deadline_s, deadline_s)
        self.changes += 1

    def _check_code(self, call: RendezvousPoll) -> None:
        """Refuses a member whose code differs; the first member's code counts while any lives."""
        if call.code == self._code:
            return
        other = next((name for name in self._live if name != call.trainer), None)
        if other is not None and self._code is not None:
            check_code(call, self._code, other)
        self._code = call.code

    def _record_rounds(self, call: RendezvousPoll) -> None:
        """Notes the newest round that a member reports, and one that it has broken off."""
        self._floor = max(self._floor, call.seen, call.at)
        if call.void is not None and call.void < self.round.number:
            self.void = max(self.void, call.void)

    def _add_member(self, call: RendezvousPoll, now_s: float) -> Member:
        slot = Slot(call.trainer, call.incarnation, call.address, call.extra)
        old = self._live.get(slot.trainer)
        if old is not None:
            self._remove(old, now_s)
            self._past.replaced[old.slot.member_id] = None
        patience = self._past.patience(slot.member_id)
        if self._past.was_dropped(slot.member_id):
            keys = {"trainer": slot.trainer, "limits_times": patience}
            self.events.append(("dropped member is back: its limits are longer now", keys))
        self._past.record_entry(slot.member_id)
        member = self._live[slot.trainer] = Member(slot, now_s, patience)
        member.probe = self._probe.number
        self._note_change(now_s)
        return member

    def _remove(self, member: Member, now_s: float) -> None:
        del self._live[member.slot.trainer]
        self._probe.settle(member.slot.trainer)
        self._note_change(now_s)

    def _drop(self, member: Member, reason: str, now_s: float, *, is_halted: bool = False) -> None:
        """Drops a member. One that is halted may return once its main thread makes progress."""
        self._remove(member, now_s)
        self._past.record_drop(member, is_halted=is_halted)
        keys = {"trainer": member.slot.trainer, "why": f"it {reason}"}
        self.events.append(("member was dropped", keys))

    def _check_waiting(self, member: Member, now_s: float) -> None:
        """Requests a probe if a member waits; drops those for which it has waited too long."""
        waiting_s = member.waiting_s or 0.0
        self._probe.suspect(waiting_s, len(self._live), now_s)
        if waiting_s <= self._stuck_s or member.at < self.round.number:
            return
        usable = filter(self.round.is_usable, self.round.present(self._live))
        idle = [peer for peer in usable if peer.waiting_s == 0 or peer.at < self.round.number]
        if any(now_s <= peer.busy_s + self._stuck_s for peer in idle):
            return
        for peer in idle:
            self._drop(peer, f"let others wait for {waiting_s:.0f} s", now_s, is_halted=True)
        if not idle and not self.round.deadlocked:
            self.round.deadlocked = True
            self._note_change(now_s)

    # -- inside: rounds ----------------------------------------------------------------------

    def _adopt_claim(self, call: RendezvousPoll, now_s: float) -> None:
        """Continues the round of a previous master, which a member of it reports."""
        claim = call.claim
        if claim is None or claim.round <= self.round.number:
            return
        slots = tuple(
            Slot(member.trainer, member.incarnation, member.address, member.extra)
            for member in claim.members
        )
        is_member = (call.trainer, call.incarnation) in {slot.member_id for slot in slots}
        if not is_member or (self.round.number and not self.inherited):
            return
        callers, self._live = self._live, {}
        for slot in slots:
            caller = callers.get(slot.trainer)
            if caller is not None and caller.slot.member_id != slot.member_id:
                self._past.replaced[slot.member_id] = None  # the newer process has called itself
            elif not self._past.has_ended(slot.member_id):
                self._live[slot.trainer] = caller or Member(slot, now_s)
        newcomers = {name: caller for name, caller in callers.items() if name not in self._live}
        self._live |= newcomers
        self._deadline_s = now_s
        self._composition_changed = True
        self.round = Round(claim.round, slots, now_s)
        self.inherited = True
        self.events.append(("round continues", {"round": claim.round, "members": len(slots)}))

    def _note_change(self, now_s: float) -> None:
        """Notes a change for which a later round is due."""
        self.changes += 1
        self._composition_changed = True
        self._window.note(now_s)

    def _note_broken(self, now_s: float) -> None:
        """Requests a probe when the first member cannot continue in the round."""
        self.changes += 1
        if self._is_void:
            return
        present = self.round.present(self._live)
        if sum(not self.round.is_usable(member) for member in present) == 1:
            self._probe.request()
            self._note_change(now_s)

    @property
    def _is_void(self) -> bool:
        """Whether the round cannot continue."""
        return self.void >= self.round.number > 0

    def _advance(self, now_s: float) -> None:
        self._advanced_s = max(self._advanced_s, now_s)
        if self._is_held_up(now_s):
            for holdup_s, member in self.round.holdups(self._live, self._stuck_s):
                if holdup_s <= now_s:
                    reason = f"was not ready for round {self.round.number}"
                    self._drop(member, reason, now_s, is_halted=True)
        if self._probe.advance(self._live, now_s):
            self._deadline_s = min(self._deadline_s, now_s + PROBE_S)
        self._check_formed()
        if self._composition_changed:
            self._compare(now_s)
        due_s = self._due_s()
        if due_s is not None and due_s <= now_s:
            self._proclaim(now_s)

    def _drop_silent(self, now_s: float) -> None:
        """Drops the members whose time limit is over."""
        if now_s < self._deadline_s:
            return
        for member in list(self._live.values()):
            if member.deadline_s(self._probe) <= now_s:
                self._drop(member, member.drop_reason(self._probe, now_s), now_s)
        deadlines_s = (member.deadline_s(self._probe) for member in self._live.values())
        self._deadline_s = min(deadlines_s, default=float("inf"))

    def _is_held_up(self, now_s: float) -> bool:
        """Whether the round forms for so long that members may have held it up."""
        return not self.round.formed and now_s >= self.round.since_s + FORMING_S

    def _holdup_s(self) -> float | None:
        """When a member is to be dropped because it holds the round up, at the earliest."""
        if self.round.formed or not self.round.slots:
            return None
        if not self._is_held_up(self._advanced_s):
            return self.round.since_s + FORMING_S
        return earliest(time_s for time_s, _ in self.round.holdups(self._live, self._stuck_s))

    def _compare(self, now_s: float) -> None:
        """Compares the round with the live members, and notes whether a later one is due."""
        self._composition_changed = False
        if self.round.is_impossible(self._live, self._past.left):
            self.void = self.round.number
        if not self._is_void and self.round.consists_of(self._live):
            self._window.close()
        elif not self._window.is_open:
            self._window.note(now_s)

    def _check_formed(self) -> None:
        """Marks the round as formed once all its members are ready."""
        if not self.round.formed and self.round.is_ready(self._live):
            self.round.formed = True
            self._composition_changed = True
            self.events.append(("round has formed", {"round": self.round.number}))

    def _due_s(self) -> float | None:
        """When the next round is to be proclaimed; None where something else must happen first."""
        if not self._window.is_open or not self._live:
            return None
        impossible = self._is_void
        forming = bool(self.round.number) and not self.round.formed
        if self._probe.in_progress or (forming and not impossible):
            return None
        is_idle = bool(self.round.number) and self.round.is_idle(self._live)
        window_s = WINDOW_S
        if (impossible or is_idle) and self.round.includes(self._live):
            window_s = SHORT_WINDOW_S if is_idle else VOID_WINDOW_S
        due_s = self._window.end_s(window_s)
        return due_s if self.round.number else max(due_s, self._settled_s)

    def _proclaim(self, now_s: float) -> None:
        number = max(self.round.number, self._floor) + 1
        self._history.add(self.round)
        self.round = Round(number, tuple(member.slot for member in self._live.values()), now_s)
        self.inherited = False
        self.changes += 1
        self._composition_changed = True
        self._window.close()
        keys = {"round": number, "trainers": [slot.trainer for slot in self.round.slots]}
        self.events.append(("round proclaimed", keys))
