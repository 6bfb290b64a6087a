"""The thread that speaks with the master for a loop: tells what was trained, brings new tasks.

While the master is away it tries again and again; the loop goes on with what is here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from edl import clock, wire
from edl.backoff import Backoff
from edl.calls import Brought, Order
from edl.errors import EdlError, MasterError, Refused, Unavailable
from edl.heart import lost_books
from edl.session import Session

log = logging.getLogger("edl")

POLL_S = 5.0
"""How long a call may wait at the master when this trainer holds nothing."""
_AGAIN_S = 0.2
_LEAST_AGAIN_S = 0.02
_CALM_S = 0.25
"""Between two calls for which nobody waits."""
_TOLD_AFTER_TRIES = 3
_TURN_S = 0.5
"""How often to look whether this loop still wants its turn, while another loop calls."""


class Store(Protocol):
    """Where tasks go: `edl.feed.Feed` says what each part means."""

    lock: threading.Lock
    tell: threading.Condition
    closing: bool

    def want(self) -> int:
        """How many tasks to lease now; needs the lock."""
        ...

    def stock(self, leases: tuple[wire.Lease, ...]) -> None:
        """Tasks came in."""
        ...

    def dry(self, *, over: bool) -> None:
        """None came in."""
        ...

    def end(self, error: EdlError | None = None) -> None:
        """Nothing more goes in or out."""
        ...


class Courier:
    """Of one loop."""

    def __init__(
        self,
        session: Session,
        feed: Store,
        dataset: str,
        kind: str,
        calm: Callable[[], bool] | None = None,
    ) -> None:
        """Calls nobody yet.

        Args:
            session: Whose calls they are.
            feed: Where tasks go.
            dataset: Whose tasks to bring.
            kind: Of tasks.
            calm: Asked with the feed's lock: whether nothing waits for the next call. Then calls
                are few, and carry more each; who has something to tell need not wake this thread.
        """
        self._session, self._feed, self._calm = session, feed, calm
        self._called_s = 0.0
        self._scope: wire.Json = {"datasets": [dataset], "kinds": [kind]}
        self._client = session.client()
        self._backoff = Backoff()
        self._again_at_s = 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edl-courier", daemon=True)
        self.away_since_s: float | None = None
        """Since when the master has not answered; None while it does."""

    def start(self) -> None:
        """Begins to bring tasks."""
        self._thread.start()

    def close(self, join_s: float) -> None:
        """Ends the thread; a call under way is given up."""
        self._closed.set()
        self._client.close()
        if self._thread.is_alive():
            self._thread.join(join_s)

    def _run(self) -> None:
        try:
            while self._due():
                self._call()
        except EdlError as error:
            self._feed.end(error)

    def _due(self) -> bool:
        """Waits until there is something to tell or to fetch; False when the loop ends."""
        feed = self._feed
        with feed.lock:
            while not feed.closing:
                pause_s = self._again_at_s - clock.monotonic_s()
                want = feed.want()
                if self._session.book.tells or (want and pause_s <= 0):
                    pause_s = self._called_s + _CALM_S - clock.monotonic_s()
                    if pause_s <= 0 or self._calm is None or not self._calm():
                        return True
                    want = 1
                wait_s = pause_s if want else None
                if self._calm is not None:
                    wait_s = _CALM_S if wait_s is None else min(wait_s, _CALM_S)
                feed.tell.wait(wait_s)
        return False

    def _call(self) -> None:
        calls, book = self._session.calls, self._session.book
        self._called_s = clock.monotonic_s()
        with calls.turn(_TURN_S) as mine:
            if not mine:
                return
            report = book.report()
            with self._feed.lock:
                # whoever reports may ask as well: an epoch's last report begins the next one
                asks = bool(report) or clock.monotonic_s() >= self._again_at_s
                want = self._feed.want() if asks else 0
            idle = want > 0 and not report and book.empty
            order = calls.order(report, self._scope, want, POLL_S if idle else 0.0)
            brought = self._answered(order)
        if brought is not None:
            self._use(order, brought)

    def _answered(self, order: Order) -> Brought | None:
        """The same call, until it is answered; None when the loop ends before.

        Raises:
            MasterError: The master refuses it.
        """
        while not (self._closed.is_set() or self._feed.closing):
            seen = self._session.joins
            try:
                brought = self._session.calls.send(self._client, order)
            except Unavailable as error:
                self._away(error)
            except Refused as error:
                if not lost_books(error):
                    raise
                self._rejoin(seen)
            else:
                self._back()
                return brought
        return None

    def _use(self, order: Order, brought: Brought) -> None:
        feed = self._feed
        if brought.refused:
            log.warning("the master did not take %s: others train them", ", ".join(brought.refused))
        if brought.state == "stop":
            self._session.stop("the master says stop")
            return
        for lease in brought.leases:
            if lease.dataset not in self._scope["datasets"]:
                raise MasterError(f"the master leased {lease.task}, which is not of this loop")
        if brought.leases:
            self._again_at_s = 0.0
            feed.stock(brought.leases)
        elif order.want or brought.state == "done":
            again_s = _AGAIN_S if brought.again_s is None else brought.again_s
            self._again_at_s = clock.monotonic_s() + max(again_s, _LEAST_AGAIN_S)
            feed.dry(over=brought.state == "done")

    def _rejoin(self, seen: int) -> None:
        try:
            self._session.rejoin(seen)
        except Unavailable as error:
            self._away(error)

    def _away(self, error: Unavailable) -> None:
        if self._closed.is_set():
            return
        if self.away_since_s is None:
            self.away_since_s = clock.monotonic_s()
        self._feed.dry(over=False)
        pause_s = self._backoff.next_s()
        if self._backoff.tries == _TOLD_AFTER_TRIES:
            log.warning("%s; going on with what is here, and trying again", error)
        self._closed.wait(pause_s)

    def _back(self) -> None:
        if self._backoff.tries >= _TOLD_AFTER_TRIES and self.away_since_s is not None:
            away_s = clock.monotonic_s() - self.away_since_s
            log.info("the master is back after %.1f s", away_s)
        self._backoff.reset()
        self.away_since_s = None
