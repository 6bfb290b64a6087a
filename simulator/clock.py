"""Virtual time: a queue of scheduled actions."""

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]


class Clock:
    """A clock that jumps from action to action; simultaneous actions run in the order of scheduling."""

    def __init__(self, start_s: float) -> None:
        """Initializes the clock; `start_s` is in seconds since the epoch, for decisions."""
        self.now_s = start_s
        self._queue: list[tuple[float, int, Action]] = []
        self._scheduled = 0

    def at(self, time_s: float, action: Action) -> None:
        """Schedules `action` at the given time, or now if that time is past."""
        self._scheduled += 1
        heappush(self._queue, (max(time_s, self.now_s), self._scheduled, action))

    def after(self, delay_s: float, action: Action) -> None:
        """Schedules `action` after the given delay."""
        self.at(self.now_s + delay_s, action)

    def run(self, until_s: float) -> None:
        """Runs all actions due up to and including `until_s`."""
        while self._queue and self._queue[0][0] <= until_s:
            self.now_s, _, action = heappop(self._queue)
            action()
        self.now_s = max(self.now_s, until_s)
