"""Members of a ring in one process: each in a thread of its own, over real sockets."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from edl.exchange import Interrupt, Listener, Ring

KEY = b"token-of-digits"
LOCAL = "127.0.0.1"
Act = Callable[[Ring], Any]


class Seats:
    """A listener and an interrupt for each member; many rounds are played on them."""

    def __init__(self, world: int) -> None:
        self.listeners = [Listener(LOCAL) for _ in range(world)]
        self.interrupts = [Interrupt() for _ in range(world)]
        self.addresses = [address_of(listener) for listener in self.listeners]
        self.waits: list[list[float | None]] = [[] for _ in range(world)]
        """What `on_wait` was told, by rank."""
        self._pool = ThreadPoolExecutor(world)

    def connect(self, rank: int, number: int = 1, key: bytes = KEY) -> Ring:
        """One member's ring."""
        return Ring.connect(
            self.listeners[rank],
            self.addresses,
            rank,
            number=number,
            key=key,
            interrupt=self.interrupts[rank],
            on_wait=self.waits[rank].append,
        )

    def member(self, rank: int, act: Act, number: int = 1, key: bytes = KEY) -> "Future[Any]":
        """One member connects, does this and leaves, in a thread."""

        def live() -> Any:
            with self.connect(rank, number, key) as ring:
                return act(ring)

        return self._pool.submit(live)

    def start(self, *acts: Act, number: int = 1) -> "list[Future[Any]]":
        """All members; one act for all, or one for each."""
        world = len(self.listeners)
        return [self.member(rank, acts[rank % len(acts)], number) for rank in range(world)]

    def run(self, *acts: Act, number: int = 1) -> list[Any]:
        """What members return or raise, by rank."""
        return results(self.start(*acts, number=number))

    def interrupt(self, rank: int, member: "Future[Any]") -> Any:
        """Ends what one member does, and returns what it raised."""
        self.interrupts[rank].set()
        (found,) = results([member])
        self.interrupts[rank].clear()
        return found

    def close(self) -> None:
        """Gives everything back; members that are still busy are interrupted."""
        for interrupt in self.interrupts:
            interrupt.set()
        self._pool.shutdown()
        for listener in self.listeners:
            listener.close()
        for interrupt in self.interrupts:
            interrupt.close()


def results(started: "Sequence[Future[Any]]", within_s: float = 20) -> list[Any]:
    """What members returned or raised."""
    return [one.exception(within_s) or one.result() for one in started]


def address_of(listener: Listener) -> str:
    """As members are told it."""
    return f"{listener.address[0]}:{listener.address[1]}"
