"""What lies between the master and the loop: leased tasks, a batch being put together, batches.

Three threads meet here. The courier brings tasks in, the reader makes batches of them, the
program takes batches out. One lock, three conditions, each woken only when it has to act.
"""

from __future__ import annotations

import threading
from collections import deque

from edl.book import Book
from edl.errors import DataError, EdlError, one_line
from edl.making import Batch, Maker
from edl.sources.base import Source
from edl.wire import Lease

_MOST_WANTED = 64


class Feed:
    """Bounded: `prefetch` batches, and as many records leased but unread."""

    def __init__(
        self, source: Source, book: Book, batch_size: int, prefetch: int, task_records: int
    ) -> None:
        self._maker = Maker(source, book, batch_size)
        self._prefetch = prefetch
        self._low = batch_size * prefetch
        self.lock = threading.Lock()
        self.tell = threading.Condition(self.lock)
        """Wakes the courier: less is in stock, or there is something to report."""
        self._room = threading.Condition(self.lock)
        self._full = threading.Condition(self.lock)
        self._unread: deque[Lease] = deque()
        self._stock = 0
        """Records leased but unread."""
        self._task_records = task_records
        """Of a whole task: so many are leased at once as fill the stock, and no more."""
        self._ready: deque[Batch] = deque()
        self._reading = False
        self._dry = False
        """Whether the last call for work brought none: a batch that is not full goes out."""
        self._over = False
        """Whether the master said that nothing is left."""
        self.closing = False
        self._error: EdlError | None = None

    # -- the courier's side ------------------------------------------------------------------

    def want(self) -> int:
        """How many tasks to lease now; needs the lock."""
        if self.closing or self._stock >= self._low or len(self._unread) >= _MOST_WANTED:
            return 0
        missing = self._low - self._stock
        return max(1, min(_MOST_WANTED, missing // self._task_records))

    def stock(self, leases: tuple[Lease, ...]) -> None:
        """Tasks came in."""
        with self.lock:
            self._dry, self._over = False, False
            for lease in leases:
                self._unread.append(lease)
                self._stock += lease.size
            self._room.notify()

    def dry(self, *, over: bool) -> None:
        """None came in.

        Args:
            over: Whether there never will: the loop ends when all that is here was trained.
        """
        with self.lock:
            self._dry, self._over = True, over
            self._room.notify()
            self._full.notify()

    def end(self, error: EdlError | None = None) -> None:
        """Nothing more goes in or out; the program sees the error, if there is one."""
        with self.lock:
            self.closing = True
            self._error = self._error or error
            self._unread.clear()
            self._ready.clear()
            self._stock = 0
            for condition in (self.tell, self._room, self._full):
                condition.notify_all()

    # -- the program's side ------------------------------------------------------------------

    def next(self, timeout_s: float) -> Batch | None:
        """The next batch, or None after a while, at the end, or when the feed closes.

        Raises:
            EdlError: What ended the feed.
        """
        with self.lock:
            if not self._ready and not self.closing and not self._ended():
                self._full.wait(timeout_s)
            if self._error is not None:
                raise self._error
            if not self._ready:
                return None
            batch = self._ready.popleft()
            self._room.notify()
            return batch

    @property
    def ended(self) -> bool:
        """Whether no batch will ever come."""
        with self.lock:
            return not self._ready and (self.closing or self._ended())

    def _ended(self) -> bool:
        busy = self._reading or self._maker.size or self._unread or self._ready
        return self._over and not busy

    # -- the reader's side -------------------------------------------------------------------

    def read(self) -> None:
        """The reader thread: reads until the feed closes."""
        try:
            self._read()
        except BaseException as error:
            self.end(DataError(f"the reader ended: {one_line(error)}"))
            raise

    def _read(self) -> None:
        while True:
            with self.lock:
                while not self.closing and not self._readable():
                    self._reading = False
                    if not self._maker.size:
                        self._full.notify()
                    self._room.wait()
                if self.closing:
                    return
                self._reading = True
                lease = self._unread[0] if self._unread else None
            batch, used, finished = self._maker.add(lease)
            with self.lock:
                self._stock -= used
                if finished and self._unread and self._unread[0] is lease:
                    self._unread.popleft()
                if batch is not None and not self.closing:
                    self._ready.append(batch)
                    self._full.notify()
                if self._stock < self._low or finished or batch is None:
                    self.tell.notify()

    def _readable(self) -> bool:
        if len(self._ready) >= self._prefetch:
            return False
        return bool(self._unread) or (self._dry and self._maker.size > 0)
