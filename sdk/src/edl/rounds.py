"""Rounds for programs that bring their own collectives: who trains together now, and until when.

`edl.sync` is made of the same parts. This is for scripts in the style of torchrun, which make a
process group from a rank and a number of members: docs/frameworks.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

from edl.errors import EdlError, Unavailable
from edl.process import session
from edl.rendezvous import Rendezvous, Round
from edl.session import Loop, Session

_LEAVE_S = 0.3


class Rounds(Loop):
    """Iterate over it: one `Round` after the other, for as long as this trainer takes part.

    ```python
    with edl.Rounds(port=29500) as rounds:
        for found in rounds:
            group = connect(found.rank, found.world, found.members[0].address)
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
        port: int,
        *,
        code: Mapping[str, str] | None = None,
        on_broken: Callable[[], None] | None = None,
        member: Session | None = None,
    ) -> None:
        """Calls nobody yet.

        Args:
            port: Where this process listens for the other members.
            code: What must be the same in all of them, by name, such as a version.
            on_broken: Called on another thread when the present round cannot go on: whatever
                blocks in a collective must end, for example by closing its connections.
            member: This trainer's session; the process's by default.
        """
        self._member = session() if member is None else member
        address = f"{self._member.settings.address}:{port}"
        self._rendezvous = Rendezvous(
            self._member.settings, self._member.incarnation, address, code or {}
        )
        if on_broken is not None:
            self._rendezvous.on_news(on_broken)
        self._on_broken = on_broken
        self._leaving = threading.Event()
        self._finished = self._is_broken = False
        self._present = 0

    def __enter__(self) -> Rounds:  # noqa: PYI034 - Self needs Python 3.11
        self._member.join()
        self._member.register(self)
        self._rendezvous.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rendezvous.leave(_LEAVE_S)
        self._rendezvous.close()
        self._member.release(self)

    def __iter__(self) -> Iterator[Round]:
        """Waits for the next round and yields it.

        Raises:
            Refused: The other members run another program.
            Unavailable: The master was away for too long.
            SystemExit: SIGTERM came, and this trainer has left; the code is 143.
        """
        while not (self._finished or self._leaving.is_set()):
            try:
                found = self._rendezvous.next(self._present, broken=self._is_broken)
            except Unavailable:
                if self._leaving.is_set():
                    break
                raise
            self._present, self._is_broken = found.number, False
            yield found
        self._member.check()

    @property
    def changed(self) -> bool:
        """Whether a later round is to begin, or this trainer is to leave: end this one.

        Members hear of it at different moments. To change after the same step, let everybody's
        answer travel with the step's sum, and change when any of them is true.
        """
        return self._leaving.is_set() or self._rendezvous.newer(self._present)

    def ready(self) -> None:
        """This member has its connections and the state in the present round."""
        self._rendezvous.ready(self._present)

    def broken(self) -> None:
        """The present round is of no use here: a collective failed."""
        self._is_broken = True

    def finish(self) -> None:
        """This trainer has done its part: there is no next round for it."""
        self._finished = True

    def wake(self, error: EdlError | None) -> None:  # noqa: ARG002 - there is no loop to raise it in
        """SIGTERM, or the master says stop."""
        self._leaving.set()
        self._rendezvous.leave(_LEAVE_S)
