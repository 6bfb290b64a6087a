"""The one place where an exchange blocks: its sockets, the interrupt, and what is told meanwhile."""

from __future__ import annotations

import select
from collections.abc import Callable

from edl import clock
from edl.errors import RoundOver
from edl.exchange.interrupt import Interrupt

OnWait = Callable[["float | None"], None]
"""Told since when (monotonic seconds) a call is blocked, and None when it is not any more."""

TELL_S = 0.25
"""Shorter waits are not told."""
_MOST_S = 60.0
READ, WRITE = select.POLLIN, select.POLLOUT


class Waiter:
    """Used by the thread that exchanges."""

    def __init__(self, interrupt: Interrupt, on_wait: OnWait | None) -> None:
        self._interrupt = interrupt
        self.on_wait = on_wait
        self._poll = select.poll()
        self._poll.register(interrupt.fileno(), READ)
        self._watched: dict[int, int] = {}
        self._since: float | None = None
        self._told = False

    def watch(self, descriptor: int, events: int) -> None:
        """Waits for these events from now on; for none at all where there are none."""
        if self._watched.get(descriptor, 0) == events:
            return
        if events:
            self._poll.register(descriptor, events)
            self._watched[descriptor] = events
        else:
            self._poll.unregister(descriptor)  # errors and hang-ups are not wanted either
            del self._watched[descriptor]

    def check(self) -> None:
        """Ends the call where it was interrupted.

        Raises:
            RoundOver: It was.
        """
        if self._interrupt.is_set:
            raise RoundOver("the exchange was interrupted by news of another round")

    def wait(self, most_s: float = _MOST_S) -> list[tuple[int, int]]:
        """Blocks until something can be done.

        Args:
            most_s: Longest wait.

        Returns:
            Descriptors and their events; nothing when the time is over.

        Raises:
            RoundOver: It was interrupted.
        """
        now = clock.monotonic_s()
        if self._since is None:
            self._since = now
        ends = now + most_s
        while True:
            until = ends if self._told else min(ends, self._since + TELL_S)
            found = self._poll.poll(max(0.0, until - now) * 1000)
            self.check()
            if found:
                return found
            now = clock.monotonic_s()
            if not self._told and now >= self._since + TELL_S:
                self._told = True
                self._tell(self._since)
            if now >= ends:
                return []

    def moved(self) -> None:
        """Something was done: the next wait counts from its own begin."""
        self._since = None
        if self._told:
            self._told = False
            self._tell(None)

    def _tell(self, since: float | None) -> None:
        if self.on_wait is not None:
            self.on_wait(since)
