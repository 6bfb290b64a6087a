"""The exchange of one round, apart from sums of gradients: `edl.collective.Ring`, or another engine's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol


class Link(Protocol):
    """A member's connection to the others of a round; its methods are described in `Ring`.

    All raise `RoundOver` where the round is over.
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
        """Sends arrays and bytes to some members."""
        ...

    def check(self) -> None:
        """Raises `RoundOver` if it is known that the round is over."""
        ...
