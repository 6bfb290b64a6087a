"""The rendezvous of a synchronous job: its members agree on rounds.

A round is a list of members, the oldest first; the index in the list is the rank. When members join
or leave, one new round is proclaimed for all changes within a short window. Pure: time is passed
in, and the caller may log `events`. The journal has no rounds: after a restart of the master the
members report their round.
"""

from edl_protocol.master import RendezvousPoll

from master.bounds import MAX_AHEAD, check_assigned
from master.membership import (
    PROBE_S,
    Member,
    MemberId,
    PastMembers,
    Probe,
    Slot,
    earliest,
    poll_pace_s,
    suspicious_s,
)
from master.round import (
    FORMING_S,
    SHORT_WINDOW_S,
    VOID_WINDOW_S,
    WINDOW_S,
    ChangeWindow,
    Round,
    RoundHistory,
)
from runtime.call_checks import Json, RefusedError

SETTLE_S = 3.0
"""How long a restarted master waits for a member that knows the round."""
STUCK_S = 120.0
"""Default limit of how long a member may let the others wait."""
MAX_CLAIMED = 1 << 51
"""The newest round that a master accepts as a claim if it knows no round. Calls report rounds up to
2^52."""


class Rendezvous:
    """The members of a job and their newest round. Not thread-safe.

    After each method that takes a time, the caller must call `tick` at `next_s`.
    """

    def __init__(self, now_s: float, *, settles: bool = False, stuck_s: float = STUCK_S) -> None:
        """Creates a rendezvous without members.

        Args:
            now_s: The time, by the same clock as in all other calls.
            settles: Whether members of a previous master may exist.
            stuck_s: A member that lets the others wait for longer is dropped.
        """
        self._stuck_s = stuck_s
        self._settled_s = now_s + (SETTLE_S if settles else 0.0)
        self._live: dict[str, Member] = {}
        """Live members by trainer, the oldest first."""
        self.round, self._history = Round(0, (), now_s), RoundHistory()
        self.void = 0
        """The newest round that cannot continue."""
        self.inherited = False
        """Whether a previous master proclaimed the round."""
        self._floor = 0
        """The newest round that a member has reported; the master's next rounds get greater
        numbers."""
        self._window = ChangeWindow()
        self._advanced_s = now_s
        self._deadline_s = float("inf")
        """No member counts as dead before this time; calls and changes may make it earlier."""
        self._composition_changed = True
        """Whether the round must be compared with the live members again."""
        self.changes = 0
        """Grows with each call that may wake other calls, or may change when `tick` is due."""
        self._probe = Probe()
        self._code: dict[str, str] | None = None
        """Fingerprints of the members' program; None until a member has reported them."""
        self._past = PastMembers()
        self.events: list[tuple[str, Json]] = []
        """Events for the log, with their fields; the caller empties the list."""

    # -- calls of members --------------------------------------------------------------------

    def call(self, call: RendezvousPoll, now_s: float) -> None:
        """Updates the rendezvous from a member's call; `answer` returns the answer.

        Raises:
            RefusedError: The member runs another program, was replaced by a newer process, or
                reports a round that no master can have proclaimed.
        """
        if self._lacks_claim(call):
            return
        member_id = call.trainer, call.incarnation
        _check_numbers(call, max(self.round.number, self._floor))
        self._adopt_claim(call, now_s)
        if member_id in self._past.replaced:
            raise RefusedError(
                409, f"{member_id[0]} was restarted: another process has this name", "incarnation"
            )
        # the program and rounds of the caller count even if it may not enter
        self._check_code(call)
        self._record_rounds(call)
        member = self._live.get(member_id[0])
        if call.left:
            self.leave(call.trainer, call.incarnation, now_s)
            return
        if member is None or member.slot.member_id != member_id:
            if not self._past.may_enter(call):
                return
            member = self._add_member(call, now_s)
        elif not (member.has_news(call) or self._probe.awaits(member)):
            member.record_call(call, self._probe.number, now_s)
            return  # most calls of a large job say only that the member is alive
        # progress of the member may change whether the round continues, and when the next round is
        # due
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

    def disconnected(self, member_id: MemberId, since_s: float, *, has_ended: bool = False) -> None:
        """Records that the connection of a member's waiting call was cut.

        Args:
            member_id: The process.
            since_s: When the connection was cut.
            has_ended: Whether its second connection is closed, too.
        """
        member = self._live.get(member_id[0])
        if member is not None and member.slot.member_id == member_id:
            member.disconnected_s, member.has_ended = since_s, has_ended
            self._expect_silence(member)

    def tick(self, now_s: float) -> None:
        """Does everything that is due; only this method drops silent members."""
        self._drop_silent(now_s)
        self._advance(now_s)

    @property
    def news(self) -> tuple[int, bool, int, int]:
        """A value that changes whenever a waiting call may have an answer."""
        return self.round.number, self.round.formed, self._probe.number, self.void

    @property
    def is_probing(self) -> bool:
        """Whether some members have not answered the probe in progress."""
        return bool(self._probe.awaited)

    def awaited(self) -> list[MemberId]:
        """Returns the members that have not answered the probe in progress."""
        return [self._live[name].slot.member_id for name in self._probe.awaited]

    # -- answers -----------------------------------------------------------------------------

    def has_answer(self, call: RendezvousPoll) -> bool:
        """Returns whether a call can be answered now."""
        is_older = self.round.number > call.seen or self._probe.number != call.probe
        knows_void = call.void is None or call.void >= self.void
        if is_older or not knows_void or self._lacks_claim(call):
            return True
        member = self._member(call)
        has_formed = self.round.formed and self.round.number == call.seen
        return has_formed and member is not None and member.formed_sent != self.round.number

    def answer(self, call: RendezvousPoll) -> Json:
        """Returns the answer to a call; see the protocol."""
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
        """Returns the round for the status."""
        return self.round.report()

    def next_s(self) -> float | None:
        """Returns when `tick` is due, if no member calls before; None if never."""
        return earliest((self._deadline_s if self._live else None, self._holdup_s(), self._due_s()))

    # -- inside: members ---------------------------------------------------------------------

    def _member(self, call: RendezvousPoll) -> Member | None:
        member = self._live.get(call.trainer)
        return member if member and member.slot.incarnation == call.incarnation else None

    def _lacks_claim(self, call: RendezvousPoll) -> bool:
        """Returns whether a call belongs to a previous master's round that this master does not know.

        Such a call is answered at once and changes nothing; the next call claims the round.
        """
        return call.known and call.claim is None and call.seen > self.round.number

    def _expect_silence(self, member: Member) -> None:
        """Records that the time limit of a member may have changed."""
        deadline_s = min(member.deadline_s(self._probe), self._probe.next_end_s)
        self._deadline_s = min(self._deadline_s, deadline_s)
        self.changes += 1

    def _check_code(self, call: RendezvousPoll) -> None:
        """Refuses a member whose program differs from the first member's, while other members live."""
        if call.code == self._code:
            return
        other = next((name for name in self._live if name != call.trainer), None)
        if other is not None and self._code is not None:
            ours, theirs = self._code, call.code
            for name in sorted({*ours, *theirs}):
                if ours.get(name) != theirs.get(name):
                    raise RefusedError(
                        409,
                        f"code.{name} is {theirs.get(name)!r:.80} with {call.trainer}, but "
                        f"{ours.get(name)!r:.80} with {other} and the members that train with it: "
                        "start all trainers of the job with the same program, or this one once the "
                        "others have ended",
                        f"code.{name}",
                    )
        self._code = call.code

    def _record_rounds(self, call: RendezvousPoll) -> None:
        """Records the newest round that a member reports, and the round that it has given up."""
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
        """Drops a member; a halted one may return once its main thread makes progress."""
        self._remove(member, now_s)
        self._past.record_drop(member, is_halted=is_halted)
        keys = {"trainer": member.slot.trainer, "why": f"it {reason}"}
        self.events.append(("member was dropped", keys))

    def _check_waiting(self, member: Member, now_s: float) -> None:
        """Requests a probe if a member waits, and drops members for which it has waited too long."""
        waiting_s = member.waiting_s or 0.0
        self._probe.suspect(waiting_s, len(self._live), now_s)
        if waiting_s <= self._stuck_s or member.at < self.round.number:
            return
        usable = filter(self.round.is_usable, self.round.present(self._live))
        idle = [peer for peer in usable if peer.waiting_s == 0 or peer.at < self.round.number]
        # a busy member, for example in an evaluation, lets the others wait for a reason
        if any(now_s <= peer.busy_s + self._stuck_s for peer in idle):
            return
        for peer in idle:
            self._drop(peer, f"let others wait for {waiting_s:.0f} s", now_s, is_halted=True)
        if not idle and not self.round.deadlocked:
            self.round.deadlocked = True
            self._note_change(now_s)

    # -- inside: rounds ----------------------------------------------------------------------

    def _adopt_claim(self, call: RendezvousPoll, now_s: float) -> None:
        """Continues a previous master's round if the caller claims it and is a member of it."""
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
        # members of the round count as alive until they miss a call, unless a newer process of the
        # same name has called
        callers, self._live = self._live, {}
        for slot in slots:
            caller = callers.get(slot.trainer)
            if caller is not None and caller.slot.member_id != slot.member_id:
                self._past.replaced[slot.member_id] = None  # a newer process has called already
            elif not self._past.has_ended(slot.member_id):
                self._live[slot.trainer] = caller or Member(slot, now_s)
        # other callers come after the members of the round: the oldest members are first
        newcomers = {name: caller for name, caller in callers.items() if name not in self._live}
        self._live |= newcomers
        self._deadline_s = now_s
        self._composition_changed = True
        self.round = Round(claim.round, slots, now_s)
        self.inherited = True
        self.events.append(("round continues", {"round": claim.round, "members": len(slots)}))

    def _note_change(self, now_s: float) -> None:
        """Records a change that requires a new round."""
        self.changes += 1
        self._composition_changed = True
        self._window.note(now_s)

    def _note_broken(self, now_s: float) -> None:
        """Requests a probe when the first of the round's members reports that it cannot continue."""
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
        """Drops members that hold the round up, and begins the probe and the round that are due."""
        self._advanced_s = max(self._advanced_s, now_s)
        if self._is_held_up(now_s):
            for holdup_s, member in self.round.holdups(self._live, self._stuck_s):
                if holdup_s <= now_s:
                    reason = f"was not ready for round {self.round.number}"
                    self._drop(member, reason, now_s, is_halted=True)
        if self._probe.advance(self._live, now_s):
            self._deadline_s = min(self._deadline_s, now_s + PROBE_S)
        if not self.round.formed and self.round.is_ready(self._live):
            self.round.formed = True
            self._composition_changed = True
            self.events.append(("round has formed", {"round": self.round.number}))
        if self._composition_changed:
            self._compare(now_s)
        due_s = self._due_s()
        if due_s is not None and due_s <= now_s:
            self._proclaim(now_s)

    def _drop_silent(self, now_s: float) -> None:
        """Drops the members whose time limit has passed."""
        if now_s < self._deadline_s:
            return
        for member in list(self._live.values()):
            if member.deadline_s(self._probe) <= now_s:
                self._drop(member, member.drop_reason(self._probe, now_s), now_s)
        deadlines_s = (member.deadline_s(self._probe) for member in self._live.values())
        self._deadline_s = min(deadlines_s, default=float("inf"))

    def _is_held_up(self, now_s: float) -> bool:
        """Returns whether the round has been forming for so long that members may hold it up."""
        return not self.round.formed and now_s >= self.round.since_s + FORMING_S

    def _holdup_s(self) -> float | None:
        """Returns when the first member that holds the round up is to be dropped; None if there is none."""
        if self.round.formed or not self.round.slots:
            return None
        if not self._is_held_up(self._advanced_s):
            return self.round.since_s + FORMING_S
        return earliest(time_s for time_s, _ in self.round.holdups(self._live, self._stuck_s))

    def _compare(self, now_s: float) -> None:
        """Compares the round with the live members, and opens or closes the window of changes."""
        self._composition_changed = False
        if self.round.is_impossible(self._live, self._past.left):
            self.void = self.round.number
        if not self._is_void and self.round.consists_of(self._live):
            self._window.close()
        elif not self._window.is_open:
            self._window.note(now_s)

    def _due_s(self) -> float | None:
        """Returns when the next round is to be proclaimed; None if something else must happen first."""
        if not self._window.is_open or not self._live:
            return None
        # no round is due before a probe has ended; a forming round is replaced only if it is
        # impossible
        impossible = self._is_void
        forming = bool(self.round.number) and not self.round.formed
        if self._probe.in_progress or (forming and not impossible):
            return None
        # if members cannot train on and there are no newcomers, a longer window gains nothing
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


def _check_numbers(call: RendezvousPoll, newest: int) -> None:
    """Refuses round numbers far beyond all others, because later rounds exceed every accepted number.

    A master that has just started knows no round. It accepts any claim up to 2^51, and a call with a
    claim may not report a later round than the claimed one.

    Args:
        call: The call.
        newest: The newest round that this master knows or a member has reported.

    Raises:
        RefusedError: No master can have proclaimed such a round.
    """
    most = newest + MAX_AHEAD
    claim = call.claim
    if claim is not None:
        check_assigned("claim.round", claim.round, most if newest else MAX_CLAIMED)
        most = max(most, claim.round)
    check_assigned("seen", call.seen, most)
    check_assigned("at", call.at, most)
    check_assigned("void", call.void or 0, most)
