"""The leader's stock of leased tasks, in order, and the plans it makes of them.

What `edl.feed.Feed` is to a loop of one trainer: the courier brings tasks in, the leader takes
plans out. The order of records is the master's: it depends on the seed, and not on time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from edl.book import Book
from edl.errors import EdlError
from edl.sync.shares import Span
from edl.wire import Lease

_MOST_WANTED = 64
"""Tasks that are leased in a call, and held where they are enough for a step."""


class Stock:
    """Thread-safe and bounded: `low` records are kept leased ahead."""

    def __init__(self, book: Book, low: int, task_records: int, away: Callable[[], bool]) -> None:
        """Begins with what the book holds.

        Args:
            book: Of the group.
            low: Leases more once fewer records are in stock.
            task_records: Of a whole task.
            away: Whether the master is away: then a short batch would be short by chance.
        """
        self._book = book
        self._low, self._task_records, self._away = low, task_records, away
        self.lock = threading.Lock()
        self.tell = threading.Condition(self.lock)
        self._came = threading.Condition(self.lock)
        self._tasks: deque[tuple[Lease, int]]
        """Leases, and from which record on they are not planned."""
        self._asked = 1
        """Records of the largest step that was asked for."""
        self._dry = self._over = False
        self.closing = False
        self._error: EdlError | None = None
        self.rewind()

    # -- the courier's side ------------------------------------------------------------------

    def want(self) -> int:
        """How many tasks to lease now; needs the lock."""
        size = self._size()
        missing = max(self._low, self._asked) - size
        many = len(self._tasks) >= _MOST_WANTED and size >= self._asked
        if self.closing or missing <= 0 or many:
            return 0
        return max(1, min(_MOST_WANTED, missing // self._task_records))

    def calm(self) -> bool:
        """Whether half of what is to be kept ahead is here; needs the lock."""
        return not self.closing and self._size() >= max(self._low // 2, self._asked)

    def stock(self, leases: tuple[Lease, ...]) -> None:
        """Tasks came in."""
        with self.lock:
            self._dry = self._over = False
            # a task that was lost and is leased again is another lease: the old one must go
            kept = [(lease, at) for lease, at in self._tasks if self._book.holds(lease)]
            there = {lease for lease, _ in kept}
            kept += [(lease, lease.start) for lease in leases if lease not in there]
            self._tasks = deque(kept)
            self._came.notify_all()

    def dry(self, *, over: bool) -> None:
        """None came in; `over`: none ever will."""
        with self.lock:
            self._dry, self._over = True, over
            self._came.notify_all()

    def end(self, error: EdlError | None = None) -> None:
        """Nothing more goes in or out."""
        with self.lock:
            self.closing = True
            self._error = self._error or error
            self.tell.notify_all()
            self._came.notify_all()

    # -- the leader's side -------------------------------------------------------------------

    def rewind(self) -> None:
        """What was planned and not trained is to be planned again."""
        with self.lock:
            self._tasks = deque((lease, lease.start + done) for lease, done in self._book.leases())
            self.tell.notify_all()

    def take(self, records: int, wait_s: float) -> tuple[Span, ...] | None:
        """The next step's records: of one epoch, and fewer only at an epoch's end.

        Returns:
            Nothing where there is not enough yet, or where this was closed; None at the end.

        Raises:
            EdlError: What ended it.
        """
        with self.lock:
            self._asked = max(self._asked, records)
            if not (self._enough(records) or self._finished() or self.closing):
                self.tell.notify_all()
                self._came.wait(wait_s)
            if self._error is not None:
                raise self._error
            if self._finished():
                return None
            found = self._cut(records) if self._enough(records) else ()
            if not self.calm():
                self.tell.notify_all()
            return found

    def spoken(self) -> None:
        """There is something in the book for the master, who hears it soon even while all is calm.

        So the courier is not woken at every step: that costs the step's own thread more time.
        """
        with self.lock:
            if not self.calm():
                self.tell.notify_all()

    def _finished(self) -> bool:
        return self._over and not self._tasks

    def _size(self) -> int:
        return sum(lease.end - at for lease, at in self._tasks)

    def _enough(self, records: int) -> bool:
        """Whether a whole batch of one epoch is here, or all there will be of it."""
        if self.closing or not self._tasks:
            return False
        epoch, size = self._tasks[0][0].epoch, 0
        for lease, at in self._tasks:
            if lease.epoch != epoch:
                return True
            size += lease.end - at
        return size >= records or (self._dry and not self._away())

    def _cut(self, records: int) -> tuple[Span, ...]:
        found: list[Span] = []
        left, epoch = records, self._tasks[0][0].epoch
        while left and self._tasks and self._tasks[0][0].epoch == epoch:
            lease, at = self._tasks.popleft()
            count = min(left, lease.end - at)
            if self._book.holds(lease):
                found.append(Span(lease, at, count))
                left -= count
                if at + count < lease.end:
                    self._tasks.appendleft((lease, at + count))
        return tuple(found)
