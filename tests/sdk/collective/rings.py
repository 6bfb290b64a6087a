"""Members of a ring in one process: each in a thread of its own, over real sockets."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from edl.collective import Interrupt, Listener, Ring

KEY = b"token-of-digits"
LOCAL = "127.0.0.1"
Act = Callable[[Ring], Any]


class Seats:
    """A listener and an interrupt for each member, for any number of rounds."""

    def __init__(self, world_size: int) -> None:
        self.listeners = [Listener(LOCAL) for _ in range(world_size)]
        self.interrupts = [Interrupt() for _ in range(world_size)]
        self.addresses = [address_of(listener) for listener in self.listeners]
        self.waits: list[list[float | None]] = [[] for _ in range(world_size)]
        """The arguments of `on_wait`, by rank."""
        self._pool = ThreadPoolExecutor(world_size)

    def connect(
        self,
        rank: int,
        number: int = 1,
        key: bytes = KEY,
        *,
        interrupt: Interrupt | None = None,
        ranks: Sequence[int] = (),
        channel: int = 0,
    ) -> Ring:
        """Connects one member's ring, with an interrupt of its own and some of the others if so said."""
        members = ranks or range(len(self.addresses))
        return Ring.connect(
            self.listeners[rank],
            [self.addresses[member] for member in members],
            members.index(rank),
            number=number,
            key=key,
            interrupt=interrupt or self.interrupts[rank],
            on_wait=self.waits[rank].append,
            channel=channel,
        )

    def member(self, rank: int, act: Act, number: int = 1, key: bytes = KEY) -> "Future[Any]":
        """Connects one member in a thread, calls a function with its ring and closes the ring."""

        def live() -> Any:
            with self.connect(rank, number, key) as ring:
                return act(ring)

        return self._pool.submit(live)

    def start(self, *acts: Act, number: int = 1) -> "list[Future[Any]]":
        """Starts all members; with one function for all, or one for each."""
        world_size = len(self.listeners)
        return [self.member(rank, acts[rank % len(acts)], number) for rank in range(world_size)]

    def run(self, *acts: Act, number: int = 1) -> list[Any]:
        """What members return or raise, by rank."""
        return results(self.start(*acts, number=number))

    def interrupt(self, rank: int, member: "Future[Any]") -> Any:
        """Interrupts one member, and returns what it raised."""
        self.interrupts[rank].set()
        (error,) = results([member])
        self.interrupts[rank].clear()
        return error

    def close(self) -> None:
        """Closes everything; members that are still busy are interrupted."""
        for interrupt in self.interrupts:
            interrupt.set()
        self._pool.shutdown()
        for listener in self.listeners:
            listener.close()
        for interrupt in self.interrupts:
            interrupt.close()


Take = Callable[[int], Seats]
"""Makes seats for so many members (fixture `take`)."""


def results(started: "Sequence[Future[Any]]", within_s: float = 20) -> list[Any]:
    """What members returned or raised."""
    return [future.exception(within_s) or future.result() for future in started]


def address_of(listener: Listener) -> str:
    """Returns a listener's address as members get it."""
    return f"{listener.address[0]}:{listener.address[1]}"
