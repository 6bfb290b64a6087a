"""A thousand members in virtual time, where the master needs time for each call and answer.

They call as the SDK does: a poll that waits, and a report once their program has waited for long.
The master is one queue: what arrives is read, and what has an answer is sent, one after the other.
"""

import functools
import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from edl_protocol.master import RendezvousPoll

from master.membership import SUSPICIOUS_S, poll_pace_s
from master.rendezvous import Rendezvous
from runtime.call_checks import Json

_AROUND_S = 0.001
"""From a member to the master, or back."""


@dataclass(eq=False)
class TimedMember:
    """One process."""

    name: str
    round: int = 0
    probe: int = 0
    void: int = 0
    is_frozen: bool = False
    late_s: float = 0.0
    """How much later than others it does anything: its machine is slow."""
    waits_since_s: float | None = None
    reported_since_s: float | None = None
    suspicious_s: float = SUSPICIOUS_S
    learnt_s: float = 0.0
    """When it received the newest round."""
    was_dropped: bool = False


class TimedCrowd:
    """Members of one round, which has formed, around a master with little time.

    Args:
        count: Members.
        call_s: What a call costs the master.
        answer_s: What an answer costs that was waited for.
        is_older: Whether they are of the version that reports each long wait at once.
    """

    def __init__(
        self, count: int, call_s: float, answer_s: float, *, is_older: bool = False
    ) -> None:
        self.now_s = 0.0
        self.reports = 0
        self._call_s, self._answer_s, self._is_older = call_s, answer_s, is_older
        self.members = [TimedMember(f"t-{number}") for number in range(count)]
        self.master = Rendezvous(0.0)
        self._waiting: dict[str, tuple[TimedMember, RendezvousPoll]] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._free_s = self._tick_s = 0.0
        for member in self.members:
            self.master.call(self._body(member, 0.0), 0.0)
        self.master.tick(1.0)
        self.now_s, self._published = 1.0, self.master.news
        pace_s = poll_pace_s(count)
        for number, member in enumerate(self.members):
            member.round = 1
            call = self._body(member, pace_s)
            self.master.call(call, self.now_s)
            member.suspicious_s = self.master.answer(call)["suspicious_s"]
            poll = functools.partial(self._poll, member)
            self._at(self.now_s + pace_s * number / count, poll)
        assert self.master.round.formed
        self.run(pace_s)

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        until_s = self.now_s + seconds
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, act = heapq.heappop(self._events)
            act()
        self.now_s = until_s

    def wait(self) -> None:
        """The programs of all that are not frozen begin to wait for others."""
        for member in self.members:
            if not member.is_frozen:
                member.waits_since_s = self.now_s
                limit_s = SUSPICIOUS_S if self._is_older else member.suspicious_s
                report = functools.partial(self._report, member, self.now_s)
                self._at(self.now_s + limit_s, report)

    def go_on(self) -> None:
        """They wait no longer."""
        for member in self.members:
            member.waits_since_s = None

    def freeze(self, numbers: Iterable[int]) -> float:
        """Freezes members. Seconds until half of the others know, for whom they wait."""
        begun_s, number = self.now_s, self.master.round.number
        for index in numbers:
            self.members[index].is_frozen = True
        self.wait()
        others = [member for member in self.members if not member.is_frozen]
        while any(member.round == number for member in others):
            assert self.now_s < begun_s + 60.0
            self.run(0.05)
        return median(member.learnt_s for member in others) - begun_s

    @property
    def dropped(self) -> list[str]:
        """The members that the master has dropped."""
        events = self.master.events
        return [keys["trainer"] for event, keys in events if event == "member was dropped"]

    # -- members -----------------------------------------------------------------------------

    def _body(self, member: TimedMember, wait_s: float) -> RendezvousPoll:
        since_s = member.waits_since_s
        return RendezvousPoll(
            trainer=member.name,
            incarnation=member.name,
            address="host:1",
            seen=member.round,
            at=member.round,
            ready=member.round > 0,
            known=member.round > 0,
            probe=member.probe,
            void=member.void,
            waiting_s=0.0 if since_s is None else self.now_s - since_s,
            wait_s=wait_s,
        )

    def _poll(self, member: TimedMember) -> None:
        self._send(member, poll_pace_s(len(self.members)))

    def _report(self, member: TimedMember, since_s: float) -> None:
        if member.waits_since_s == since_s != member.reported_since_s:
            member.reported_since_s = since_s
            self.reports += 1
            self._send(member, 0.0)

    def _send(self, member: TimedMember, wait_s: float) -> None:
        if not member.is_frozen:
            call = self._body(member, wait_s)
            self._at(
                self.now_s + _AROUND_S + member.late_s,
                lambda: self._work(self._call_s, lambda: self._handle(member, call)),
            )

    def _receive(self, member: TimedMember, answer: Json, *, is_poll: bool) -> None:
        if member.is_frozen:
            return
        is_news = answer["probe"] > member.probe or answer["round"] > member.round
        member.probe = max(answer["probe"], member.probe)
        member.void = max(answer["void"], member.void)
        member.was_dropped |= answer["dropped"]
        member.suspicious_s = answer["suspicious_s"]
        if answer["round"] > member.round:
            member.round, member.learnt_s = answer["round"], self.now_s
            member.waits_since_s = None
        if is_news and not self._is_older:
            member.reported_since_s = member.waits_since_s
        if is_poll:
            self._poll(member)

    # -- the master --------------------------------------------------------------------------

    def _at(self, time_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, next(self._order), act))

    def _work(self, cost_s: float, act: Callable[[], None]) -> None:
        """Does something when all that came before is done."""
        self._free_s = max(self._free_s, self.now_s) + cost_s
        self._at(self._free_s, act)

    def _handle(self, member: TimedMember, call: RendezvousPoll) -> None:
        self.master.call(call, self.now_s)
        self._publish()
        if call.wait_s and not self.master.has_answer(call):
            self._waiting[member.name] = member, call
            self._at(self.now_s + call.wait_s, lambda: self._end_wait(member, call))
        else:
            self._answer(member, call)

    def _end_wait(self, member: TimedMember, call: RendezvousPoll) -> None:
        if self._waiting.get(member.name) == (member, call):
            del self._waiting[member.name]
            self._work(self._answer_s, lambda: self._answer(member, call))

    def _answer(self, member: TimedMember, call: RendezvousPoll) -> None:
        answer, is_poll = self.master.answer(call), bool(call.wait_s)
        self._at(self.now_s + _AROUND_S, lambda: self._receive(member, answer, is_poll=is_poll))

    def _publish(self) -> None:
        if self.master.news != self._published:
            self._published = self.master.news
            for member, call in list(self._waiting.values()):
                if self.master.has_answer(call):
                    self._end_wait(member, call)
        next_s = self.master.next_s()
        if next_s is not None and (next_s < self._tick_s or self._tick_s <= self.now_s):
            self._tick_s = max(next_s, self.now_s + 0.001)
            self._at(self._tick_s, self._tick)

    def _tick(self) -> None:
        next_s = self.master.next_s()
        if next_s is not None and next_s <= self.now_s:
            self.master.tick(self.now_s)
        self._publish()
