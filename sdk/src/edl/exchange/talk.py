"""Plays one side of a handshake on a non-blocking socket."""

from __future__ import annotations

import socket
from typing import Generic, TypeVar

from edl.exchange.handshake import Script

T = TypeVar("T")


class Talk(Generic[T]):
    """`begin` and `hear` return the outcome once there is one; what fails is for the caller."""

    def __init__(self, made: socket.socket, script: Script[T]) -> None:
        self.made = made
        self._script = script
        self._heard = b""
        self._hear = 0

    def begin(self) -> T | None:
        """Says the first words."""
        return self._advance()

    def hear(self) -> T | None:
        """Hears what has come.

        Raises:
            OSError: The other side is gone, or has closed the connection.
            HandshakeError: It is not one of ours.
        """
        try:
            heard = self.made.recv(self._hear - len(self._heard))
        except BlockingIOError:
            return None
        if not heard:
            raise ConnectionResetError("it closed the connection")
        self._heard += heard
        return self._advance() if len(self._heard) == self._hear else None

    def _advance(self) -> T | None:
        """Says what is to be said, until something must be heard."""
        while len(self._heard) == self._hear:
            heard, self._heard = self._heard, b""
            try:
                turn = self._script.send(heard) if self._hear else next(self._script)
            except StopIteration as ended:
                outcome: T = ended.value
                return outcome
            self._hear = turn.hear
            if self.made.send(turn.say) < len(turn.say):
                raise ConnectionResetError("it does not take the handshake's few bytes")
        return None
