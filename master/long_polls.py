"""Calls that wait for an answer: calls for work, and polls of the rendezvous."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from edl_protocol.master import RendezvousPoll

from master.commands import More
from master.ledger import Ledger
from master.membership import DISCONNECTED_S, MemberId
from master.rendezvous import Rendezvous
from runtime.call_checks import Json
from runtime.logs import keys

log = logging.getLogger(__name__)

IsClosed = Callable[[], bool]
"""Whether the caller has closed its connection."""
_MIN_PAUSE_S = 0.002
_LATE_S = 0.1
"""If the loop wakes up later than this, the process stood still. It then spends this time reading
the calls that have arrived, before it drops silent members."""
_LOOKS_S = 0.05
"""Time between two checks of the connections of members that have not answered a probe."""


@dataclass(slots=True, eq=False)
class _WaitingCall:
    """A call for work that waits for tasks."""

    command: More
    """The command that the call executes when it is woken."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class WaitingCalls:
    """All calls for work that wait for tasks; everything runs in one asyncio loop."""

    def __init__(self) -> None:
        self._calls: set[_WaitingCall] = set()

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def trainers(self) -> Iterator[str]:
        """The trainers whose calls wait."""
        return (call.command.trainer for call in self._calls)

    async def wait(self, command: More, wait_s: float) -> bool:
        """Waits until a command has an answer.

        Returns:
            Whether the command has an answer; False after `wait_s` seconds.
        """
        call = _WaitingCall(command)
        self._calls.add(call)
        try:
            await asyncio.wait_for(call.woken.wait(), wait_s)
        except TimeoutError:
            return False
        finally:
            self._calls.discard(call)
        return True

    def wake(self, ledger: Ledger) -> None:
        """Wakes the calls that have an answer now."""
        for call in self._calls:
            if ledger.has_answer_for(call.command):
                call.woken.set()

    def end(self) -> None:
        """Wakes all calls, because the master stops."""
        for call in self._calls:
            call.woken.set()


@dataclass(slots=True, eq=False)
class _WaitingPoll:
    """A poll of the rendezvous that waits for an answer."""

    call: RendezvousPoll
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class LongPolls:
    """The polls of one job's rendezvous, and the loop that tells it the time. Runs in one asyncio loop."""

    def __init__(
        self,
        rendezvous: Rendezvous,
        clock_s: Callable[[], float],
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        """Creates the polls, without any.

        Args:
            rendezvous: The job's rendezvous.
            clock_s: A monotonic clock.
            on_news: Called after each change of the rendezvous for which polls wait.
        """
        self._rendezvous, self._on_news = rendezvous, on_news
        self._clock_s = clock_s
        self._polls: set[_WaitingPoll] = set()
        self._newest: dict[MemberId, _WaitingPoll] = {}
        """Each member's newest poll, if it waits."""
        self._connections: dict[MemberId, IsClosed] = {}
        """The connection of each member's newest call that may wait for an answer."""
        self._reporting: dict[MemberId, IsClosed] = {}
        """The connection of each member's newest call that may not wait: members report on a second
        connection."""
        self._cut_s: dict[MemberId, float] = {}
        """Member whose waiting call was cut off -> when; the member's next call removes the
        entry."""
        self._changed = asyncio.Event()
        self._ended = False
        self._published = rendezvous.news
        self._looked_s = float("-inf")
        """When connections were checked last, on the loop's clock."""

    @property
    def waiting(self) -> int:
        """Number of polls that wait for an answer."""
        return len(self._polls)

    async def poll(self, call: RendezvousPoll, is_closed: IsClosed) -> Json:
        """Answers a poll as soon as there is news for it; see the protocol."""
        rendezvous = self._rendezvous
        changes, member_id = rendezvous.changes, (call.trainer, call.incarnation)
        if call.wait_s:
            self._newest.pop(member_id, None)
            self._connections[member_id] = is_closed
        else:
            self._reporting[member_id] = is_closed
        self._cut_s.pop(member_id, None)
        rendezvous.call(call, self._clock_s())
        if rendezvous.changes != changes:
            self._changed.set()
        self._publish()
        if call.wait_s and not rendezvous.has_answer(call) and not self._ended:
            await self._wait(call)
        return rendezvous.answer(call)

    def leave(self, trainer: str, incarnation: str) -> Json:
        """Excludes a member from later rounds; see the protocol."""
        self._rendezvous.leave(trainer, incarnation, self._clock_s())
        self._changed.set()
        self._publish()
        return {}

    def report(self) -> Json:
        """Returns the round for the status."""
        return self._rendezvous.report()

    async def run(self) -> None:
        """Calls the rendezvous whenever something is due, until it is cancelled."""
        while True:
            pause_s = self._pause_s()
            begun_s = self._clock_s()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):  # `wait_for` of 3.11 may lose a cancellation
                    await self._changed.wait()
            if pause_s is not None and self._clock_s() > begun_s + pause_s + _LATE_S:
                await asyncio.sleep(_LATE_S)  # members whose calls were not read yet are not silent
            self._changed.clear()
            self._look_at_connections()
            self._look_at_cut_members()
            self._rendezvous.tick(self._clock_s())
            self._publish()

    def _pause_s(self) -> float | None:
        next_s = self._rendezvous.next_s()
        pause_s = None if next_s is None else max(_MIN_PAUSE_S, next_s - self._clock_s())
        if pause_s is not None and (self._rendezvous.is_probing or self._cut_s):
            looks_in_s = self._looked_s + _LOOKS_S - asyncio.get_running_loop().time()
            return min(pause_s, max(_MIN_PAUSE_S, looks_in_s))
        return pause_s

    def _look_at_cut_members(self) -> None:
        """Finds cut members whose process has ended: their second connection is closed, too."""
        now_s = self._clock_s()
        for member_id, cut_s in list(self._cut_s.items()):
            is_closed = self._reporting.get(member_id)
            has_ended = is_closed is not None and is_closed()
            if has_ended:
                self._rendezvous.disconnected(member_id, cut_s, has_ended=True)
            if has_ended or now_s >= cut_s + DISCONNECTED_S:
                del self._cut_s[member_id]

    def _look_at_connections(self) -> None:
        """Finds members that died after their poll was answered, for example by a probe.

        Checks at most every `_LOOKS_S`, because a probe of a thousand members causes a thousand
        calls.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s < self._looked_s + _LOOKS_S:
            return
        self._looked_s = now_s
        for member_id in self._rendezvous.awaited():
            is_closed = self._connections.get(member_id)
            if is_closed is not None and is_closed():
                del self._connections[member_id]
                self._disconnected(member_id)

    def _disconnected(self, member_id: MemberId) -> None:
        self._cut_s[member_id] = now_s = self._clock_s()
        self._rendezvous.disconnected(member_id, now_s)

    def end(self) -> None:
        """Answers all waiting polls; later ones do not wait."""
        self._ended = True
        for poll in self._polls:
            poll.woken.set()

    async def _wait(self, call: RendezvousPoll) -> None:
        poll, member_id = _WaitingPoll(call), (call.trainer, call.incarnation)
        self._polls.add(poll)
        self._newest[member_id] = poll
        try:
            async with asyncio.timeout(call.wait_s):
                await poll.woken.wait()
        except TimeoutError:
            return
        except asyncio.CancelledError:
            # an old connection may end after the member's next call on a new one
            if self._newest.get(member_id) is poll:
                self._disconnected(member_id)
                self._changed.set()
            raise
        finally:
            self._polls.discard(poll)
            if self._newest.get(member_id) is poll:
                del self._newest[member_id]

    def _publish(self) -> None:
        """Wakes the polls that have an answer now, and logs the events of the rendezvous."""
        if self._rendezvous.news != self._published:
            self._published = self._rendezvous.news
            self._on_news()
            in_round = self._rendezvous.round.has
            for by_member in (self._connections, self._reporting, self._cut_s):
                for member_id in [known for known in by_member if not in_round(known)]:
                    del by_member[member_id]
            for poll in self._polls:
                if self._rendezvous.has_answer(poll.call):
                    poll.woken.set()
        events, self._rendezvous.events = self._rendezvous.events, []
        for event, fields in events:
            log.info(event, extra=keys(**fields))
