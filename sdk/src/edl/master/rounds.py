"""Rounds for programs with their own collectives: which trainers form a group, and when it changes.

They are for programs that create a process group from a rank and a world size, as scripts for torchrun
do; see docs/frameworks.md. `edl.sync` uses the same parts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping

from edl.errors import EdlError, RoundOver, Unavailable
from edl.master.protocol import Round
from edl.master.rendezvous import Rendezvous
from edl.master.round_store import RoundStore
from edl.master.session import Loop, Session, session
from edl.overriding import override

log = logging.getLogger("edl")

_LEAVE_S = 0.3
_LONG_CALL_S = 5.0
"""How long `on_broken` may run before a warning is logged."""


class BreakCalls:
    """Calls a program's `on_broken` on a separate thread, so that calls to the master continue meanwhile."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts a call unless one is running, and returns at once; for one thread at a time."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._call, name="edl-on-broken", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Waits for a running call to end, so that it cannot break a collective of the next round."""
        thread = self._thread
        if thread is None:
            return
        thread.join(_LONG_CALL_S)
        if thread.is_alive():
            log.warning("on_broken has taken %.0f s: the next round waits for it", _LONG_CALL_S)
            thread.join()

    def _call(self) -> None:
        try:
            self._callback()
        except Exception:
            log.exception("on_broken failed")


class Rounds(Loop):
    """An iterator over the rounds in which this trainer takes part.

    ```python
    with edl.Rounds(port=29500) as rounds:
        for round in rounds:
            group = connect(round.rank, round.world_size, round.members[0].address)
            rounds.ready()
            while not rounds.changed and more():
                try:
                    step(group)
                except ConnectionError:
                    rounds.broken()
                    break
            else:
                if not rounds.changed:
                    rounds.finish()
    ```
    """

    def __init__(
        self,
        port: int = 0,
        *,
        code: Mapping[str, str] | None = None,
        extra: str = "",
        on_broken: Callable[[], None] | None = None,
        member: Session | None = None,
    ) -> None:
        """Creates the iterator; entering its context joins the job and starts calling the master.

        Args:
            port: Port on which this process listens for other members; 0 if they connect only
                through `store`.
            code: Name -> value, such as a version, that must be equal in all members.
            extra: Text that the members of the next round receive as `extra` of this member's entry in
                `round.members`, at most 1024 printable ASCII characters. `tell` changes it.
            on_broken: Called when the current round cannot continue. It must end a blocked collective,
                for example by closing connections. It runs on a separate thread, may block, and is
                called again while the program remains in the round. The next round starts after it
                has returned.
            member: This trainer's session; the process's session by default.
        """
        self._member = session() if member is None else member
        address = f"{self._member.settings.address}:{port}"
        self._rendezvous = Rendezvous(
            self._member.settings, self._member.incarnation, address, code or {}, extra
        )
        self._client = self._member.client()
        self._store: RoundStore | None = None
        self._break_calls = None if on_broken is None else BreakCalls(on_broken)
        if self._break_calls is not None:
            self._rendezvous.on_void(self._break_calls.start)
        self._leaving = threading.Event()
        self._finished = self._is_broken = False
        self._current_number = 0

    def __enter__(self) -> Rounds:  # noqa: PYI034 - Self needs Python 3.11
        self._member.join()
        self._member.register(self)
        self._rendezvous.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rendezvous.leave(_LEAVE_S)
        self._rendezvous.close()
        self._client.close()
        self._member.release(self)

    def __iter__(self) -> Iterator[Round]:
        """Waits for the next round and yields it.

        Raises:
            Refused: The other members run a different program.
            Unavailable: The master was away for too long.
            SystemExit: This trainer received SIGTERM and has left; the exit code is 143.
        """
        while not (self._finished or self._leaving.is_set()):
            try:
                round_ = self._rendezvous.next(self._current_number, broken=self._is_broken)
            except Unavailable:
                if self._leaving.is_set():
                    break
                raise
            if self._break_calls is not None:
                self._break_calls.wait()
            self._current_number, self._is_broken = round_.number, False
            self._store = RoundStore(self._client, round_.number)
            yield round_
        self._member.check()

    @property
    def changed(self) -> bool:
        """Whether to end the current round, because there is a newer round or this trainer must leave.

        Members see this at different times. To end the round after the same step in all members, sum the
        flag over all members in each step, and end the round if the sum is above 0.
        """
        return self._leaving.is_set() or self._rendezvous.newer(self._current_number)

    @property
    def store(self) -> RoundStore:
        """The key-value store of the current round at the master.

        Raises:
            RoundOver: The first round has not started.
        """
        if self._store is None:
            raise RoundOver("the first round has not started: use the store inside the loop")
        return self._store

    def tell(self, extra: str) -> None:
        """Sets this member's `extra` text for the next round."""
        self._rendezvous.tell(extra)

    def ready(self) -> None:
        """Reports that this member has connected and loaded the state of the current round."""
        self._rendezvous.ready(self._current_number)

    def broken(self) -> None:
        """Reports at once that the current round is broken, because a collective failed."""
        self._is_broken = True
        self._rendezvous.broken(self._current_number)

    def waiting(self, since_s: float | None) -> None:
        """Reports since when this member has been waiting for others, so that the master probes them.

        Args:
            since_s: Start of the wait, as a time of `edl.clock.monotonic_s`; None if the member no longer
                waits.
        """
        self._rendezvous.waiting(since_s)

    def finish(self) -> None:
        """Marks this trainer as finished; it takes no part in later rounds."""
        self._finished = True

    @override
    def wake(self, error: EdlError | None) -> None:  # noqa: ARG002 - the rendezvous cannot raise it
        """Leaves the rendezvous, after SIGTERM or because the master requested a stop."""
        self._leaving.set()
        self._rendezvous.leave(_LEAVE_S)
