"""Virtual time: what is to happen, in order."""

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]


class Clock:
    """Moves from event to event; what is due at one moment happens in the order it was asked for."""

    def __init__(self, start_s: float) -> None:
        """`start_s`: seconds since the epoch, as decisions see them."""
        self.now_s = start_s
        self._queue: list[tuple[float, int, Action]] = []
        self._asked = 0

    def at(self, time_s: float, action: Action) -> None:
        """Does `action` then, or now where that is past."""
        self._asked += 1
        heappush(self._queue, (max(time_s, self.now_s), self._asked, action))

    def after(self, delay_s: float, action: Action) -> None:
        """Does `action` that much later."""
        self.at(self.now_s + delay_s, action)

    def run(self, until_s: float) -> None:
        """Lets time pass; what is due at `until_s` itself still happens."""
        while self._queue and self._queue[0][0] <= until_s:
            self.now_s, _, action = heappop(self._queue)
            action()
        self.now_s = max(self.now_s, until_s)
