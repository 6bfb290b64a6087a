"""The member's side of the master's rendezvous, which forms the rounds of a synchronous job.

Two threads call the master over separate connections: the poller waits for changes at the master, and
the sender reports changes of this member at once. The program's thread waits for the network only in
`next`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping

from edl import clock
from edl.backoff import Backoff
from edl.errors import MasterError, Refused, Unavailable
from edl.master import protocol
from edl.master.client import Client
from edl.master.connection import Connection
from edl.master.long_wait import LongWait
from edl.master.protocol import Round, RoundView
from edl.master.settings import Settings

log = logging.getLogger("edl")

POLL_S = 1.0
"""How long a call waits at the master, which drops members that do not call for 3 s."""
_STALL_CHECK_S = 0.25
"""How often the sender checks whether it is late, and whether the program is waiting."""
_ANSWER_S = 3.0
_MAX_BACKOFF_S = 0.5
"""Keeps retries frequent: members must call again within 3 s after the master is back."""
_STALL_S = 0.7
"""If the last check was this long ago, the process was frozen or its machine is overloaded."""
_LOGGED_AFTER_S = 0.3
"""Shorter absences of the master are not logged."""
_JOIN_S = 2.0


class Rendezvous:
    """A member of the rendezvous; thread-safe except for `next`, which only one thread may call."""

    def __init__(
        self,
        client_settings: Settings,
        incarnation: str,
        address: str,
        code: Mapping[str, str] | None = None,
        extra: str = "",
    ) -> None:
        """Creates the threads; `start` starts them.

        Args:
            client_settings: This trainer's settings.
            incarnation: The id of this process.
            address: `host:port` at which other members reach this member.
            code: Name -> value that identifies the program and must be equal in all members.
            extra: Text that the members of the next round receive from this member.
        """
        self._settings = client_settings
        self._incarnation = incarnation
        self._address, self._code, self._extra = address, dict(code or {}), extra
        self._clients = [self.client(), self.client()]
        runs = (self._run_poller, "edl-rendezvous"), (self._run_sender, "edl-rendezvous-send")
        self._threads = [
            threading.Thread(target=run, args=(client,), name=name, daemon=True)
            for (run, name), client in zip(runs, self._clients)
        ]
        self._changed = threading.Condition()
        self._void_callbacks: list[Callable[[], None]] = []
        self._newest_view = RoundView(0, (), formed=False, probe=0, void=0)
        self._poll_s = POLL_S
        self._is_short = False
        """Whether calls leave out fields that the master knows; older masters need all fields."""
        self._current_view: RoundView | None = None
        """The round that the program is in."""
        self._ready = self._broken = False
        self._busy_until_s = -math.inf
        self._wait = LongWait()
        self._checked_s = clock.monotonic_s()
        """When a thread last checked for a stall."""
        self._was_stalled = False
        """Whether a check was so late that the process may have been frozen."""
        self._version, self._sent_version = 1, 0
        """Number of this member's changes so far, and the number up to which the master knows them."""
        self._leaving = self._has_left = self._closed = False
        self._error: Refused | None = None
        self._away: Unavailable | None = None
        self._away_since_s = 0.0
        self._logged_away = False

    # -- for the program ---------------------------------------------------------------------

    def start(self) -> None:
        """Starts the threads; this trainer becomes a member with the next round."""
        for thread in self._threads:
            thread.start()

    def next(self, after: int, *, broken: bool = False) -> Round:
        """Waits for a round after `after` that includes this member, and enters it.

        Args:
            after: The round that the program was in; 0 before the first round.
            broken: Whether this round cannot continue, so that the master must form another round.

        Raises:
            Refused: The other members run a different program, or a newer process has this
                trainer's name.
            Unavailable: The master was away for longer than `patience_s`, or this member has
                left.
        """
        with self._changed:
            if broken:
                self._newest_view = self._newest_view.broken_off(after)
                self._report_broken()
            while (round_ := self._later_round(after)) is None:
                self._report_idle()
                self._changed.wait(self._wait_limit_s())
            self._current_view = self._newest_view
            self._ready = self._broken = False
            self._wait.since_s = None
            self._notify_sender()
        return round_

    def newer(self, than: int) -> bool:
        """Returns whether there is a later round or `next` would raise; cheap enough for every step."""
        return self._newest_view.round > than or self._error is not None

    def on_void(self, callback: Callable[[], None]) -> None:
        """Adds a callback that ends a blocked exchange when the current round cannot continue.

        A thread of this class calls it after each answer of the master until the program enters a
        later round. The callback must not block.
        """
        self._void_callbacks.append(callback)

    def ready(self, number: int) -> None:
        """Reports that this member has connected and loaded the model of a round."""
        with self._changed:
            if self._current_view is not None and self._current_view.round == number:
                self._ready = True
                self._notify_sender()

    def broken(self, number: int) -> None:
        """Reports that a round cannot continue, before this member is able to enter the next one."""
        with self._changed:
            if self._current_view is not None and self._current_view.round == number:
                self._report_broken()

    def waiting(self, since_s: float | None) -> None:
        """Records since when (monotonic) the program has been waiting for others; None if it is not waiting."""
        self._wait.since_s = since_s

    def stalled(self) -> bool:
        """Returns whether this process may have been frozen since the last call; cheap enough for every step.

        Other members may have continued without it.
        """
        if not self._was_stalled and clock.monotonic_s() - self._checked_s < _STALL_S:
            return False
        if self._away is not None:
            return False  # no member is replaced while the master is away
        self._check_stall()
        self._was_stalled = False
        return True

    def busy(self, *, now: bool, max_s: float = math.inf) -> None:
        """Records whether this program keeps the others waiting on purpose, for at most `max_s`."""
        with self._changed:
            if now and self._poll_s > POLL_S:
                self._notify_sender()  # the poller's next call may be far off
            self._busy_until_s = clock.monotonic_s() + max_s if now else -math.inf

    def tell(self, extra: str) -> None:
        """Sets this member's `extra` text for the next round."""
        with self._changed:
            if extra != self._extra:
                self._extra = extra
                self._notify_sender()

    def leave(self, timeout_s: float) -> None:
        """Excludes this member from later rounds; its threads keep calling until `close`."""
        with self._changed:
            if not self._threads[1].is_alive():
                return
            self._leaving = True
            self._notify_sender()
            if not self._changed.wait_for(lambda: self._has_left or self._over, timeout_s):
                log.warning(
                    "could not report that this trainer leaves; the master will notice later"
                )

    def close(self) -> None:
        """Ends the threads and connections; if this member has not left, the master drops it later."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for client in self._clients:
            client.close()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(_JOIN_S)

    # -- internals ---------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return self._closed or self._error is not None

    def client(self) -> Client:
        """Returns a client of this member with a separate connection."""
        settings = self._settings
        connection = Connection(settings.master, settings.token)
        return Client(connection, settings.trainer, self._incarnation)

    def _rank_in(self, view: RoundView) -> int | None:
        """Returns this member's rank in a round, or None if it is not a member."""
        return view.rank_of(self._settings.trainer, self._incarnation)

    def _notify_sender(self) -> None:
        """Makes the sender report a change at once; the caller holds the lock."""
        self._version += 1
        self._changed.notify_all()

    def _report_broken(self) -> None:
        if not self._broken:
            self._broken = True
            self._notify_sender()

    def _report_idle(self) -> None:
        """Reports that the program waits for the next round, so that the master does not wait for it."""
        if self._current_view is not None and self._wait.since_s is None:
            self._wait.since_s = clock.monotonic_s()
            self._notify_sender()

    def _later_round(self, after: int) -> Round | None:
        if self._error is not None:
            raise self._error
        if self._leaving or self._closed:
            raise Unavailable("this trainer has left the rendezvous")
        newest = self._newest_view
        if newest.round <= after:
            return None
        rank = self._rank_in(newest)
        if rank is None:
            self._report_broken()  # a dropped member is added again only after it reports this
            return None
        return Round(newest.round, rank, newest.members)

    def _wait_limit_s(self) -> float:
        """Returns how long `next` may wait before it checks again.

        Raises:
            Unavailable: The master has been away for longer than `patience_s`.
        """
        if self._away is None:
            return self._settings.patience_s
        left_s = self._away_since_s + self._settings.patience_s - clock.monotonic_s()
        if left_s <= 0:
            raise self._away
        return left_s

    # -- threads -----------------------------------------------------------------------------

    def _run_poller(self, client: Client) -> None:
        """Runs the poller thread, which waits for changes at the master."""
        backoff = Backoff(max_s=_MAX_BACKOFF_S)
        while not self._over:
            self._poll(client, backoff, self._poll_s)

    def _run_sender(self, client: Client) -> None:
        """Runs the sender thread, which reports changes of this member at once."""
        backoff = Backoff(max_s=_MAX_BACKOFF_S)
        while self._wait_for_change():
            if self._leaving and not self._has_left:
                self._leave(client, backoff)
            else:
                self._poll(client, backoff, 0.0)

    def _wait_for_change(self) -> bool:
        """Waits for a change to report; returns False once the rendezvous is over."""
        with self._changed:
            while not self._over:
                self._check_stall()
                if self._version != self._sent_version or self._next_check_s() <= 0.0:
                    return True
                self._changed.wait(self._next_check_s())
        return False

    def _check_stall(self) -> None:
        """Records a stall for the program, since after a freeze the sender may run before the program."""
        now_s = clock.monotonic_s()
        self._was_stalled |= now_s - self._checked_s >= _STALL_S
        self._checked_s = now_s

    def _next_check_s(self) -> float:
        due_in_s = self._wait.due_in_s(clock.monotonic_s())
        return _STALL_CHECK_S if due_in_s is None else min(due_in_s, _STALL_CHECK_S)

    def _poll(self, client: Client, backoff: Backoff, wait_s: float) -> None:
        with self._changed:
            body, version, since_s = self._poll_body(), self._version, self._wait.since_s
        try:
            view = client.poll_rendezvous(body, wait_s, _ANSWER_S)
        except MasterError as error:
            if self._is_short and isinstance(error, Refused) and error.field == "known":
                self._is_short = False  # an older master took over: repeat the call with all fields
            else:
                self._handle_error(error, backoff)
            return
        backoff.reset()
        if view.asks_claim:
            self._is_short = False  # the call had no effect: repeat it with the claim
            return
        with self._changed:
            self._is_short = view.asks_claim is not None
            self._poll_s = view.wait_s or POLL_S
            self._sent_version = max(self._sent_version, version)
            self._wait.record_report(since_s, body["waiting_s"])
        self._apply_view(view)

    def _leave(self, client: Client, backoff: Backoff) -> None:
        try:
            client.leave_rendezvous(_ANSWER_S)
        except MasterError as error:
            self._handle_error(error, backoff)
            return
        with self._changed:
            self._has_left = True
            self._changed.notify_all()

    def _poll_body(self) -> protocol.Json:
        newest, current_view = self._newest_view, self._current_view
        fields: protocol.Json = {"claim": None}
        if self._rank_in(newest) is not None:
            fields = newest.reference(is_short=self._is_short)
        if self._extra:
            fields["extra"] = self._extra
        return {
            "address": self._address,
            "code": self._code,
            "seen": newest.round,
            "at": 0 if current_view is None else current_view.round,
            "ready": self._ready,
            "broken": self._broken,
            "left": self._has_left,
            "busy": clock.monotonic_s() < self._busy_until_s,
            "waiting_s": self._wait.length_s(clock.monotonic_s()),
            "probe": newest.probe,
            **fields,
        }

    def _apply_view(self, view: RoundView) -> None:
        """Applies an answer; answers to the two threads may arrive out of order."""
        with self._changed:
            newest = self._newest_view
            if self._logged_away:
                away_s = clock.monotonic_s() - self._away_since_s
                log.info("the master's rendezvous is back after %.1f s", away_s)
            self._away, self._logged_away = None, False
            self._wait.record_answer(view, newest)
            self._newest_view = view = view.completed(newest)
            current_view = self._current_view
            if current_view is not None and view.void >= current_view.round:
                self._run_callbacks()
            self._changed.notify_all()

    def _run_callbacks(self) -> None:
        """Runs the callbacks while holding the lock, so that `next` cannot return a later round before."""
        for callback in self._void_callbacks:
            callback()

    def _handle_error(self, error: MasterError, backoff: Backoff) -> None:
        """Waits if the master is away; ends the rendezvous if the master refuses the call."""
        with self._changed:
            if self._closed:
                return
            if not isinstance(error, Refused):
                pause_s = self._note_away(error, backoff)
                self._changed.wait_for(lambda: self._closed, pause_s)
            elif self._error is None:
                self._error = error
                log.error("the rendezvous is over for this trainer: %s", error)
                self._run_callbacks()
                self._changed.notify_all()

    def _note_away(self, error: MasterError, backoff: Backoff) -> float:
        now_s = clock.monotonic_s()
        if self._away is None:
            self._away_since_s = now_s
        self._away = error if isinstance(error, Unavailable) else Unavailable(str(error))
        if not self._logged_away and now_s >= self._away_since_s + _LOGGED_AFTER_S:
            self._logged_away = True
            log.warning("%s; the round continues, retrying", error)
        self._changed.notify_all()
        return backoff.next_s()
