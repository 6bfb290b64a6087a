"""Limits the bytes of request bodies that a server holds at once. No I/O.

It counts the bytes that have arrived, not the length that a caller announces. Above the maximum, the
body that started to arrive first is dropped: an ordinary body arrives within milliseconds.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class BodyBudget(Generic[K]):
    """The bodies in the memory of one server.

    Args:
        max_bytes: Limit for all bodies together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._arriving: dict[K, int] = {}
        """Bytes of incomplete bodies, the oldest body first."""
        self._complete: dict[K, int] = {}
        self._bytes = 0

    def take(self, caller: K, count: int) -> list[K]:
        """Counts bytes that have arrived from a caller.

        Returns:
            The callers whose connections must be dropped; `caller` may be among them.
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
        """Notes that a body is complete: it counts until `release`, and is not dropped."""
        if caller in self._arriving:
            self._complete[caller] = self._arriving.pop(caller)

    def release(self, caller: K) -> None:
        """Removes the body of a caller, if it has one."""
        self._bytes -= self._arriving.pop(caller, 0) + self._complete.pop(caller, 0)
