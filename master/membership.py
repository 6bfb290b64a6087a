"""Tells from calls and probes which members of a rendezvous are alive, and which have left.

Pure; time is passed in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from edl_protocol.master import RendezvousPoll

from runtime.bounded_dict import BoundedDict

MemberId = tuple[str, str]
"""Trainer and incarnation: one process."""

SILENT_S = 3.0
"""A member that has not called for this long is dropped; polls of small jobs wait 1 s."""
PROBE_S = 0.7
"""All members must answer a probe within this time."""
ANSWER_GAP_S = 0.3
"""After an answer to a probe, the other members have at least this long to answer: the answers of a
large job are read one after the other."""
_UNANSWERED_S = 5.0
"""If no member answers a probe, it lasts this long, because the master or its network may be at
fault."""
DISCONNECTED_S = 0.2
"""A member whose poll was cut off must call again within this time; a killed process cannot."""
ENDED_S = 0.05
"""The shorter limit that applies if the member's second connection is closed, too, as after a
kill."""
SUSPICIOUS_S = 0.3
"""A member that waits this long for the others may wait for a frozen one."""
_BETWEEN_PROBES_S = 2.0
"""Shortest time between two probes whose only reason is a waiting member: it may just wait for a
long step."""
_MAX_ANSWERS_PER_S = 200.0
"""Maximum number of answers per second to such probes, from all members together."""
MAX_PATIENCE = 4.0
"""Limit of `Member.patience`, so that a machine that freezes repeatedly cannot hold the others up
for longer and longer."""
_SLACK_S = 2.0
_POLLS_PER_S = 100.0
_WAIT_REPORTS_PER_S = 60.0
"""Maximum number of reports per second from members that all wait for the same member; the first
report begins a probe."""
_MIN_POLL_S, MAX_POLL_S = 1.0, 10.0
_MAX_REMEMBERED = 1024


class Slot(NamedTuple):
    """A member's entry in the list of a round; its index is the rank."""

    trainer: str
    incarnation: str
    address: str
    extra: str = ""
    """Text that the member tells the others in this round."""

    @property
    def member_id(self) -> MemberId:
        """The process that has this slot."""
        return self.trainer, self.incarnation


@dataclass(slots=True)
class Member:
    """A process that takes part in the rendezvous."""

    slot: Slot
    last_call_s: float
    patience: float = 1.0
    """Factor of the member's time limits, 1 to `MAX_PATIENCE`; greater if the member was dropped
    while it was alive."""
    poll_s: float = 1.0
    """How long its polls wait."""
    at: int = 0
    """The round that its main thread has reached."""
    ready_at: int = 0
    """The newest round in which it was ready."""
    busy_s: float = float("-inf")
    """When it last reported that it is busy, for example with an evaluation."""
    broken_at: int = 0
    """The newest round in which it could not continue."""
    waiting_s: float | None = None
    """How long it has waited, according to its newest call; None before its first call to this
    master."""
    probe: int = 0
    """The newest probe that it answered."""
    disconnected_s: float | None = None
    """When its connection was cut; None while it is not."""
    has_ended: bool = False
    """Whether its second connection was closed, too."""
    formed_sent: int = 0
    """The newest formed round that an answer reported to it."""

    def record_call(self, call: RendezvousPoll, probe: int, now_s: float) -> None:
        """Updates the member from a call. Calls may arrive out of order, so its rounds never decrease.

        Args:
            call: The call; see the protocol.
            probe: The number that answers the probe in progress.
            now_s: The time of the call.
        """
        self.last_call_s, self.disconnected_s, self.has_ended = now_s, None, False
        if call.wait_s:
            self.poll_s = call.wait_s
        at = call.at
        self.at = max(self.at, at)
        if call.ready:
            self.ready_at = max(self.ready_at, at)
        if call.broken:
            self.broken_at = max(self.broken_at, at)
        self.waiting_s = call.waiting_s
        if call.busy:
            self.busy_s = now_s
        if call.extra != self.slot.extra:
            self.slot = self.slot._replace(extra=call.extra)
        if call.probe == probe:
            self.probe = probe

    def has_news(self, call: RendezvousPoll) -> bool:
        """Returns whether a call says more than that the member is alive."""
        reported = (
            call.at,
            call.ready and call.at > self.ready_at,
            call.broken and call.at > self.broken_at,
            call.extra,
            call.waiting_s > 0,
            call.wait_s or self.poll_s,
        )
        known = (self.at, False, False, self.slot.extra, bool(self.waiting_s), self.poll_s)
        is_first = self.waiting_s is None
        return is_first or reported != known or call.waiting_s >= SUSPICIOUS_S

    def deadline_s(self, probe: "Probe") -> float:
        """Returns when the member counts as dead, unless it calls before that time."""
        deadline_s = self.last_call_s + self._limit(max(SILENT_S, self.poll_s + _SLACK_S))
        if self.disconnected_s is not None:
            limit_s = self._limit(ENDED_S if self.has_ended else DISCONNECTED_S)
            deadline_s = min(deadline_s, self.disconnected_s + limit_s)
        if probe.awaits(self):
            deadline_s = min(deadline_s, probe.ends_s(self._limit(PROBE_S)))
        return deadline_s

    def drop_reason(self, probe: "Probe", now_s: float) -> str:
        """Returns why the member counts as dead, for the log."""
        if self.disconnected_s is not None:
            return "disconnected and did not call again"
        if probe.awaits(self) and now_s >= probe.ends_s(self._limit(PROBE_S)):
            return f"did not answer within {self._limit(PROBE_S):g} s"
        return f"did not call for {now_s - self.last_call_s:.1f} s"

    def _limit(self, limit_s: float) -> float:
        return limit_s * self.patience


class Probe:
    """A request to all members to call at once, because one of them may be frozen."""

    def __init__(self) -> None:
        self.number = 0
        self.since_s = 0.0
        """When the probe began."""
        self.awaited: set[str] = set()
        """Trainers that have not answered yet."""
        self._answered_s = float("-inf")
        """When the newest answer arrived."""
        self._requested = False
        self._newest_s = float("-inf")
        """When the newest probe began."""

    @property
    def in_progress(self) -> bool:
        """Whether a probe is requested, or some members have not answered it yet."""
        return self._requested or bool(self.awaited)

    def awaits(self, member: Member) -> bool:
        """Returns whether a member has not answered yet."""
        return member.slot.trainer in self.awaited

    def request(self) -> None:
        """Requests a probe, because a member cannot continue; the probe follows the one in progress."""
        self._requested = True

    def suspect(self, waiting_s: float, members: int, now_s: float) -> None:
        """Requests a probe if a member has waited for a long time and the last probe is not recent.

        Args:
            waiting_s: How long a member has waited for the others.
            members: Number of members; each of them answers a probe.
            now_s: The time.
        """
        pause_s = max(_BETWEEN_PROBES_S, members / _MAX_ANSWERS_PER_S)
        if waiting_s >= SUSPICIOUS_S and now_s >= self._newest_s + pause_s and not self.in_progress:
            self._requested = True

    @property
    def next_end_s(self) -> float:
        """When the first member without an answer may count as dead; inf if all have answered."""
        return self.ends_s(PROBE_S) if self.awaited else float("inf")

    def ends_s(self, limit_s: float) -> float:
        """Returns when members that have not answered within a limit count as dead."""
        if self._answered_s < self.since_s:
            return self.since_s + max(limit_s, _UNANSWERED_S)
        return max(self.since_s + limit_s, self._answered_s + ANSWER_GAP_S)

    def record_answer(self, trainer: str, now_s: float) -> None:
        """Records that a trainer has answered."""
        if trainer in self.awaited:
            self.awaited.discard(trainer)
            self._answered_s = now_s

    def settle(self, trainer: str) -> None:
        """Stops waiting for a trainer that is no longer a member."""
        self.awaited.discard(trainer)

    def advance(self, live: Mapping[str, Member], now_s: float) -> bool:
        """Begins a probe if one is requested and none is in progress; returns whether it did."""
        if self.awaited or not self._requested:
            return False
        self.number += 1
        self.since_s = self._newest_s = now_s
        self._answered_s = float("-inf")
        self.awaited, self._requested = set(live), False
        return True


def poll_pace_s(members: int) -> float:
    """Returns how long polls wait at the master, in seconds: 1 for small jobs, up to 10 for large ones."""
    return min(MAX_POLL_S, max(_MIN_POLL_S, members / _POLLS_PER_S))


def suspicious_s(rank: int) -> float:
    """Returns how long a member waits for others before it reports that it waits, in seconds.

    One report is enough to begin a probe, so the time grows with the rank. If a thousand members
    reported at the same moment, in each step with one slow member, their reports would delay the
    answers to the probe.
    """
    return round(SUSPICIOUS_S + rank / _WAIT_REPORTS_PER_S, 2)


def earliest(times_s: Iterable[float | None]) -> float | None:
    """Returns the earliest of the times that are not None; None if there is no such time."""
    return min((time_s for time_s in times_s if time_s is not None), default=None)


class PastMembers:
    """The processes that left a rendezvous, were dropped from it, or were replaced."""

    def __init__(self) -> None:
        self.replaced: BoundedDict[MemberId, None] = BoundedDict(_MAX_REMEMBERED)
        """Processes that a newer process of the same name has replaced."""
        self.left: BoundedDict[MemberId, None] = BoundedDict(_MAX_REMEMBERED)
        self._dropped: BoundedDict[MemberId, float] = BoundedDict(_MAX_REMEMBERED)
        """Dropped members -> their patience if they return."""
        self._halted: BoundedDict[MemberId, tuple[int, bool, bool]] = BoundedDict(_MAX_REMEMBERED)
        """Member that was dropped because its main thread was stuck -> the state of that thread:
        the round that it had reached, whether it was ready, and whether it could not continue."""

    def record_drop(self, member: Member, *, is_halted: bool) -> None:
        """Records that a member was dropped.

        Args:
            member: The member.
            is_halted: Whether its main thread was stuck; otherwise it was silent.
        """
        member_id, at = member.slot.member_id, member.at
        self._dropped[member_id] = min(MAX_PATIENCE, 2 * member.patience)
        if is_halted:
            is_ready, is_broken = member.ready_at == at > 0, member.broken_at == at > 0
            self._halted[member_id] = at, is_ready, is_broken

    def record_entry(self, member_id: MemberId) -> None:
        """Records that a process is a member, perhaps again."""
        self._halted.pop(member_id, None)

    def has_ended(self, member_id: MemberId) -> bool:
        """Returns whether a process has left, or a newer process has its name."""
        return member_id in self.left or member_id in self.replaced

    def was_dropped(self, member_id: MemberId) -> bool:
        """Returns whether a process was dropped."""
        return member_id in self._dropped

    def patience(self, member_id: MemberId) -> float:
        """Returns the factor of a member's time limits."""
        return self._dropped.get(member_id, 1.0)

    def may_enter(self, call: RendezvousPoll) -> bool:
        """Returns whether a caller may enter.

        A process that has left may not enter again. A process that was dropped because its main
        thread was stuck may enter once that thread has made progress.
        """
        member_id = call.trainer, call.incarnation
        progress = self._halted.get(member_id)
        return member_id not in self.left and progress != (call.at, call.ready, call.broken)
