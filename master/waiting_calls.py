"""Calls for work that wait for tasks."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from master.commands import More
from master.ledger import Ledger


@dataclass(slots=True, eq=False)
class _WaitingCall:
    """A call for work that waits for tasks."""

    command: More
    """What it executes when it is woken."""
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
        """Waits until a command has an answer; whether it has one before its time is over."""
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
        """Wakes all calls, as the master ends."""
        for call in self._calls:
            call.woken.set()
