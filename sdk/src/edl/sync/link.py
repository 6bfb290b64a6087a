"""The interface of a round's connections, apart from sums of gradients."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol


class Link(Protocol):
    """A member's connection to the others of a round, such as `edl.collective.Ring`.

    All methods raise `RoundOver` once the round is over.
    """

    def gather(self, payload: bytes) -> list[bytes]:
        """Returns all members' payloads, in order of rank."""
        ...

    def barrier(self) -> None:
        """Returns when all members have called it."""
        ...

    def broadcast(
        self, arrays: Sequence[Any] | None, meta: bytes, source: int
    ) -> tuple[bytes, list[Any]]:
        """Sends the source's arrays and bytes to all members."""
        ...

    def receive(self, source: int) -> tuple[bytes, list[Any]]:
        """Receives another member's broadcast."""
        ...

    def hand_over(
        self, arrays: Sequence[Any] | None, meta: bytes, receivers: Collection[int]
    ) -> tuple[bytes, list[Any]]:
        """Sends arrays and bytes to some members; see `edl.collective.Ring.hand_over`."""
        ...

    def check(self) -> None:
        """Raises `RoundOver` if it is known that the round is over."""
        ...
