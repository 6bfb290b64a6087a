"""Rounds for programs with their own collectives: which trainers form the group, and until when.

`edl.sync` is built of the same parts. This is for scripts in the style of torchrun, which make a
process group from a rank and a world size: docs/frameworks.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

from edl.errors import EdlError, RoundOver, Unavailable
from edl.master.break_calls import BreakCalls
from edl.master.protocol import Round
from edl.master.rendezvous import Rendezvous
from edl.master.round_store import RoundStore
from edl.master.session import Loop, Session, session
from edl.overriding import override

_LEAVE_S = 0.3


class Rounds(Loop):
    """An iterator over rounds: yields one `Round` after the other while this trainer takes part.

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
        """Makes no call yet.

        Args:
            port: The port on which this process listens for the other members; 0 where they meet
                through `store` alone.
            code: Values that must be equal in all members, by name, such as a version.
            extra: What all members of the next round receive with it, as `extra` of this one's
                entry in `round.members`: at most 1 024 printable ASCII characters. `tell` changes it.
            on_broken: Called when the current round cannot continue: it must end a blocked
                collective, for example by closing its connections. It runs on a thread of its own,
                may take its time, and is called again while the program stays in the round. The
                next round is yielded once it has returned.
            member: This trainer's session; the process's by default.
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
            Refused: The other members run another program.
            Unavailable: The master was away for too long.
            SystemExit: SIGTERM came, and this trainer has left; the exit code is 143.
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
        """Whether to end the current round: a later one is to begin, or this trainer is to leave.

        Members receive this at different times. To change after the same step, sum this flag over
        all members with each step, and change when any of them is true.
        """
        return self._leaving.is_set() or self._rendezvous.newer(self._current_number)

    @property
    def store(self) -> RoundStore:
        """Keys that the members of the current round share, at the master; they end with the round.

        Raises:
            RoundOver: There was no round yet.
        """
        if self._store is None:
            raise RoundOver("the first round has not begun: use the store within the loop")
        return self._store

    def tell(self, extra: str) -> None:
        """Sets what all members receive of this one with the next round."""
        self._rendezvous.tell(extra)

    def ready(self) -> None:
        """Reports that this member has its connections and the state of the current round."""
        self._rendezvous.ready(self._current_number)

    def broken(self) -> None:
        """Reports at once that the current round is broken, because a collective failed."""
        self._is_broken = True
        self._rendezvous.broken(self._current_number)

    def waiting(self, since_s: float | None) -> None:
        """Reports since when this member has waited for others, which the master then looks after.

        Args:
            since_s: On the clock of `edl.clock`; None where it waits no longer.
        """
        self._rendezvous.waiting(since_s)

    def finish(self) -> None:
        """Marks this trainer as finished: it takes part in no later round."""
        self._finished = True

    @override
    def wake(self, error: EdlError | None) -> None:  # noqa: ARG002 - there is no loop to raise it in
        """Leaves the rendezvous, after SIGTERM or because the master requested a stop."""
        self._leaving.set()
        self._rendezvous.leave(_LEAVE_S)
