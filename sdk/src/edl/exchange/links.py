"""A member's two connections at work: streams go out and come in, and every end has a cause."""

from __future__ import annotations

from collections.abc import Sequence

from edl.errors import RoundOver
from edl.exchange import farewell, frames, sockets
from edl.exchange.farewell import Farewell, Kind
from edl.exchange.forming import Pair
from edl.exchange.frames import Incoming, LastWords, Outgoing
from edl.exchange.operations import Inbound, Out
from edl.exchange.waiter import READ, WRITE, Waiter


class Links:
    """Used by one thread."""

    def __init__(self, pair: Pair, waiter: Waiter, names: Sequence[str], rank: int) -> None:
        self._forward, self._backward = pair
        self._outgoing, self._incoming = Outgoing(pair.forward), Incoming(pair.backward)
        self._waiter = waiter
        self._me, self._before = names[rank], names[rank - 1]
        self._after = names[(rank + 1) % len(names)]
        self._ended_after: Farewell | None = None
        """What the next member said last."""
        self.done = 0
        """Operations that were completed here."""

    def carry(self, out: Out, inbound: Inbound) -> None:
        """Sends and receives until both are done.

        Args:
            out: What is to be sent; `inbound` may add to it.
            inbound: Views to be filled.

        Raises:
            RoundOver: That cannot be, and why.
        """
        self._check_after()
        self._outgoing.put(out)
        view = next(inbound, None)
        while view is not None or self._outgoing:
            self._waiter.check()
            moved = bool(self._outgoing) and self._send()
            if view is not None:
                got = self._receive(view) if len(view) else 0
                if got == len(view):
                    view, moved = next(inbound, None), True
                    self._outgoing.put(out)
                elif got:
                    view, moved = view[got:], True
            if moved:
                self._waiter.moved()
            else:
                self._wait(reading=view is not None)
        self.done += 1

    def fail(self, error: RoundOver) -> None:
        """Tells both neighbours why, and ends the connections."""
        self._end(farewell.after(error, self._me, self.done))

    def leave(self) -> None:
        """Ends the connections between two operations."""
        self._end(Farewell(Kind.LEFT, self.done, ""))

    def _end(self, words: Farewell) -> None:
        for link in (self._forward, self._backward):
            self._waiter.watch(link.fileno(), 0)
        frames.tell_before(self._backward, words)
        self._outgoing.end(words)
        sockets.end(self._backward)
        sockets.end(self._forward)

    def _send(self) -> bool:
        try:
            return self._outgoing.send()
        except OSError as error:
            self._hear_after()
            text = f"{self._after} takes nothing more: {error.strerror or error}"
            raise RoundOver(text) from error

    def _receive(self, view: memoryview) -> int:
        try:
            return self._incoming.receive(view)
        except LastWords as last:
            raise _error(last.words, self._before) from None
        except OSError as error:
            text = f"{self._before} sends nothing more: {error.strerror or error}"
            raise RoundOver(text) from error

    def _wait(self, *, reading: bool) -> None:
        writing = WRITE if self._outgoing else 0
        hearing = READ if self._ended_after is None else 0
        self._waiter.watch(self._backward.fileno(), READ if reading else 0)
        self._waiter.watch(self._forward.fileno(), hearing | writing)
        for descriptor, events in self._waiter.wait():
            if descriptor == self._forward.fileno() and events & ~WRITE:
                self._hear_after()

    def _hear_after(self) -> None:
        """The next member said something, or is gone."""
        words = frames.last_words(self._forward)
        if words is None:
            raise RoundOver(f"{self._after} takes nothing more: {frames.WORDLESS}")
        self._ended_after = words
        self._check_after()

    def _check_after(self) -> None:
        """A member that ended when it had all of this operation is not missed in it."""
        words = self._ended_after
        if words is not None and words.done <= self.done:
            raise _error(words, self._after)


def _error(words: Farewell | None, name: str) -> RoundOver:
    if words is None or words.kind is Kind.LEFT:
        return RoundOver(f"{name} has left the round")
    return words.error()
