"""Which members of a rendezvous are alive, by their calls and by probes. Pure; time is passed in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from edl_protocol.master import RendezvousPoll

MemberId = tuple[str, str]
"""Trainer and incarnation: one process."""

SILENT_S = 3.0
"""A member that has not called for this long is dropped; polls wait 1 s."""
PROBE_S = 0.7
"""All members must answer a probe within this time, ..."""
ANSWER_GAP_S = 0.3
"""... or this long after another has: the answers of a large job are read one after the other."""
_UNANSWERED_S = 5.0
"""A probe that nobody answers lasts this long: the master or its network stands still, not all."""
DISCONNECTED_S = 0.2
"""A member whose poll was cut off must call again within this time: a killed process does not, ..."""
ENDED_S = 0.05
"""... or within this one where its other connection is closed, too: those of a killed process all are."""
SUSPICIOUS_S = 0.3
"""A member that waits this long for the others may wait for one that is frozen."""
_BETWEEN_PROBES_S = 2.0
"""Least time between probes for waiting alone: steps may take as long."""
_MAX_ANSWERS_PER_S = 200.0
"""Answers to probes for waiting alone, of all members together."""
MAX_PATIENCE = 4.0
"""A machine that stands still again and again must not let the others wait for ever longer: for 3 s at most."""
_SLACK_S = 2.0
_POLLS_PER_S = 100.0
_WAIT_REPORTS_PER_S = 60.0
"""Reports of members of one round that all wait for the same one: the first begins a probe."""
_MIN_POLL_S, MAX_POLL_S = 1.0, 10.0


class Slot(NamedTuple):
    """A member's entry in the list of a round; its index is the rank."""

    trainer: str
    incarnation: str
    address: str
    extra: str = ""
    """What the member told the others with this round."""

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
    """Factor of its time limits, greater after it was dropped although it was alive; `MAX_PATIENCE` at most."""
    poll_s: float = 1.0
    at: int = 0
    """The round that its main thread has reached."""
    ready_at: int = 0
    busy_s: float = float("-inf")
    """When it last reported that it is busy, for example with an evaluation."""
    broken_at: int = 0
    """The newest round in which it could not continue."""
    waiting_s: float | None = None
    """How long it has waited, by its newest call; None while only others have reported it."""
    probe: int = 0
    """The newest probe that it has answered."""
    disconnected_s: float | None = None
    """Since when its connection is cut; None where it is not."""
    has_ended: bool = False
    """Whether all of its connections are cut since then."""
    formed_sent: int = 0
    """The newest round that an answer has reported to it as formed."""

    def record_call(self, call: RendezvousPoll, probe: int, now_s: float) -> None:
        """Updates the member by a call; calls may arrive out of order, so no round decreases.

        Args:
            call: The call, as in the protocol.
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
        """Whether a call says more than that it is alive; its time limits then only end later."""
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
        """When it counts as dead, unless it calls before."""
        deadline_s = self.last_call_s + self._limit(max(SILENT_S, self.poll_s + _SLACK_S))
        if self.disconnected_s is not None:
            limit_s = self._limit(ENDED_S if self.has_ended else DISCONNECTED_S)
            deadline_s = min(deadline_s, self.disconnected_s + limit_s)
        if probe.awaits(self):
            deadline_s = min(deadline_s, probe.ends_s(self._limit(PROBE_S)))
        return deadline_s

    def drop_reason(self, probe: "Probe", now_s: float) -> str:
        """Why it counts as dead, for the log."""
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
        """Since when answers are awaited."""
        self.awaited: set[str] = set()
        """Trainers that have not answered yet."""
        self._answered_s = float("-inf")
        """When the newest answer came."""
        self._requested = False
        self._newest_s = float("-inf")

    @property
    def in_progress(self) -> bool:
        """Whether it is not known yet which members are alive."""
        return self._requested or bool(self.awaited)

    def awaits(self, member: Member) -> bool:
        """Whether a member has not answered yet."""
        return member.slot.trainer in self.awaited

    def request(self) -> None:
        """Starts a probe, at once or after the one in progress: a member cannot continue."""
        self._requested = True

    def suspect(self, waiting_s: float, members: int, now_s: float) -> None:
        """Requests a probe if a member has waited for long and the last probe is not recent.

        Args:
            waiting_s: How long a member has waited for the others.
            members: How many members there are: each of them answers a probe.
            now_s: The time.
        """
        pause_s = max(_BETWEEN_PROBES_S, members / _MAX_ANSWERS_PER_S)
        if waiting_s >= SUSPICIOUS_S and now_s >= self._newest_s + pause_s and not self.in_progress:
            self._requested = True

    @property
    def next_end_s(self) -> float:
        """When the first of those that have not answered may count as dead; inf where all have."""
        return self.ends_s(PROBE_S) if self.awaited else float("inf")

    def ends_s(self, limit_s: float) -> float:
        """When who has not answered within this limit counts as dead."""
        if self._answered_s < self.since_s:
            return self.since_s + max(limit_s, _UNANSWERED_S)
        return max(self.since_s + limit_s, self._answered_s + ANSWER_GAP_S)

    def record_answer(self, trainer: str, now_s: float) -> None:
        """Notes that a trainer has answered."""
        if trainer in self.awaited:
            self.awaited.discard(trainer)
            self._answered_s = now_s

    def settle(self, trainer: str) -> None:
        """Awaits no answer of a trainer that is no longer a member."""
        self.awaited.discard(trainer)

    def advance(self, live: Mapping[str, Member], now_s: float) -> bool:
        """Begins a probe where one is requested and none is in progress; whether one began."""
        if self.awaited or not self._requested:
            return False
        self.number += 1
        self.since_s = self._newest_s = now_s
        self._answered_s = float("-inf")
        self.awaited, self._requested = set(live), False
        return True


def poll_pace_s(members: int) -> float:
    """How long a poll of a member waits at the master: few members call each second, many later."""
    return min(MAX_POLL_S, max(_MIN_POLL_S, members / _POLLS_PER_S))


def suspicious_s(rank: int) -> float:
    """How long a member of this rank waits for others until it reports that at once.

    One report is enough where all wait. Those of a thousand at one moment would keep the probe
    waiting that the first has begun, and come with each step in which one of them is slow.
    """
    return round(SUSPICIOUS_S + rank / _WAIT_REPORTS_PER_S, 2)


def earliest(times_s: Iterable[float | None]) -> float | None:
    """The first of some times; None where there is none."""
    return min((time_s for time_s in times_s if time_s is not None), default=None)
