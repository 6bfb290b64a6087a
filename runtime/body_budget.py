"""How many bytes of request bodies a server holds at once, without any I/O.

What counts is what has arrived, not what a caller announces. Where it is too much, the body that
has been arriving for longest is given up: an honest one takes milliseconds.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class BodyBudget(Generic[K]):
    """The bodies in the memory of one server.

    Args:
        max_bytes: Of all bodies together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._arriving: dict[K, int] = {}
        """Bytes of bodies that are incomplete, the oldest first."""
        self._complete: dict[K, int] = {}
        self._bytes = 0

    def take(self, caller: K, count: int) -> list[K]:
        """Counts bytes that have arrived; returns the callers whose bodies must be given up.

        The caller itself may be among them.
        """
        self._arriving[caller] = self._arriving.get(caller, 0) + count
        self._bytes += count
        dropped = []
        while self._bytes > self._max_bytes and self._arriving:
            oldest = next(iter(self._arriving))
            self.release(oldest)
            dropped.append(oldest)
        return dropped

    def complete(self, caller: K) -> None:
        """Notes that a body is complete: it is kept until it is released."""
        if caller in self._arriving:
            self._complete[caller] = self._arriving.pop(caller)

    def release(self, caller: K) -> None:
        """Forgets the body of a caller, if there is one."""
        self._bytes -= self._arriving.pop(caller, 0) + self._complete.pop(caller, 0)
