"""The handshake in which two neighbours prove that they belong to the same job and round.

The initiator of a connection sends a hello with its position and a nonce. The responder answers with its
verdict, another nonce and a proof. Then the initiator sends its proof. A proof is an HMAC-SHA256 over all
messages so far with the job's token as key, so the token is never sent and a recorded handshake cannot be
replayed. Data after the handshake is neither encrypted nor signed.

Both sides are generators without I/O (`Script`), which `HandshakeDriver` runs on a socket.
"""

from __future__ import annotations

import hmac
import socket
import struct
from collections.abc import Generator
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

NONCE_BYTES = 16
MAGIC = b"EDLring2"
"""The first bytes on a connection, which name the protocol and its version."""
_HELLO = struct.Struct("!8sQIII16s")
_ANSWER = struct.Struct("!BQ16s")
_PROOF_BYTES = 32
HELLO_BYTES = _HELLO.size

T = TypeVar("T")


class HandshakeStep(NamedTuple):
    """A step of one side: the bytes to send, and the number of bytes to receive after that."""

    send: bytes
    receive_bytes: int


Script = Generator[HandshakeStep, bytes, T]
"""One side of a handshake: yields steps, is sent the received bytes, and returns the outcome."""


class RoundPosition(NamedTuple):
    """A member's position: the round's number, the member's rank, the number of members."""

    number: int
    rank: int
    world_size: int
    channel: int = 0
    """Index of the ring within its round; a process connects its rings in this order."""

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: rings of a process that are connected later have larger keys."""
        return self.number, self.channel


class ClientHello(NamedTuple):
    """The initiator's first message."""

    position: RoundPosition
    raw: bytes
    """The received bytes, which the proofs cover."""


class Verdict(IntEnum):
    """The responder's answer to a hello."""

    WELCOME = 0
    LATER = 1
    """The responder is in a later round, so the initiator's round is over."""


class Outcome(NamedTuple):
    """The result of a handshake for the initiator."""

    verdict: Verdict
    number: int
    """The responder's round."""


class HandshakeError(Exception):
    """The peer is not a member of this job, or not the expected neighbour; the message says why."""


def pack_hello(position: RoundPosition, nonce: bytes) -> bytes:
    """Returns the initiator's first message."""
    return _HELLO.pack(
        MAGIC, position.number, position.rank, position.world_size, position.channel, nonce
    )


def unpack_hello(raw: bytes) -> ClientHello:
    """Reads the initiator's first message.

    Raises:
        HandshakeError: The message does not belong to this protocol.
    """
    magic, number, rank, world_size, channel, _ = _HELLO.unpack(raw)
    if magic != MAGIC:
        raise HandshakeError("it does not speak the ring's protocol")
    return ClientHello(RoundPosition(number, rank, world_size, channel), raw)


def initiate(position: RoundPosition, key: bytes, nonce: bytes) -> Script[Outcome]:
    """Runs the initiator's side.

    Raises:
        HandshakeError: The responder does not have the token.
    """
    hello = pack_hello(position, nonce)
    reply = yield HandshakeStep(hello, _ANSWER.size + _PROOF_BYTES)
    answer, proof = reply[: _ANSWER.size], reply[_ANSWER.size :]
    if not hmac.compare_digest(proof, _proof(key, b"answer", hello, answer)):
        raise HandshakeError("it did not prove that it has this job's token")
    verdict, number, _ = _ANSWER.unpack(answer)
    if verdict not in tuple(Verdict):
        raise HandshakeError(f"it sent the verdict {verdict}, which this version does not know")
    if verdict == Verdict.WELCOME:
        yield HandshakeStep(_proof(key, b"make", hello, answer), 0)
    return Outcome(Verdict(verdict), number)


def receive_hello() -> Script[ClientHello | bool]:
    """Runs the first part of the responder's side, which receives the hello.

    Raises:
        HandshakeError: The bytes do not belong to this protocol.
    """
    return unpack_hello((yield HandshakeStep(b"", HELLO_BYTES)))


def respond(
    hello: ClientHello, position: RoundPosition, key: bytes, nonce: bytes
) -> Script[ClientHello | bool]:
    """Runs the second part of the responder's side, which answers a hello.

    Returns:
        Whether the initiator is the expected neighbour; False if the answer told it that its round is
        over.

    Raises:
        HandshakeError: The initiator does not have the token, or is not at the expected position.
    """
    remote = hello.position
    verdict = Verdict.LATER if remote.number < position.number else Verdict.WELCOME
    previous = previous_position(position)
    if verdict is Verdict.WELCOME and remote != previous:
        raise HandshakeError(
            f"it claims rank {remote.rank} of {remote.world_size}, but rank {previous.rank} of "
            f"{position.world_size} was expected in round {position.number}, channel {position.channel}"
        )
    answer = _ANSWER.pack(verdict, position.number, nonce)
    reply = answer + _proof(key, b"answer", hello.raw, answer)
    if verdict is Verdict.LATER:
        yield HandshakeStep(reply, 0)
        return False
    proof = yield HandshakeStep(reply, _PROOF_BYTES)
    if not hmac.compare_digest(proof, _proof(key, b"make", hello.raw, answer)):
        raise HandshakeError("it did not prove that it has this job's token")
    return True


def previous_position(position: RoundPosition) -> RoundPosition:
    """Returns the position of the member that connects to this one."""
    return position._replace(rank=(position.rank - 1) % position.world_size)


def _proof(key: bytes, side: bytes, hello: bytes, answer: bytes) -> bytes:
    return hmac.new(key, side + hello + answer, "sha256").digest()


class HandshakeDriver(Generic[T]):
    """Runs one side of a handshake on a non-blocking socket; the caller handles errors."""

    def __init__(self, connection: socket.socket, script: Script[T]) -> None:
        self.connection = connection
        self._script = script
        self._received = b""
        self._receive_bytes = 0

    def start(self) -> T | None:
        """Runs the first step; returns the outcome if the script has ended already, otherwise None."""
        return self._advance()

    def on_readable(self) -> T | None:
        """Receives available data; returns the outcome once it is known, otherwise None.

        Raises:
            OSError: The peer has closed the connection, or is gone.
            HandshakeError: The peer was refused.
        """
        try:
            data = self.connection.recv(self._receive_bytes - len(self._received))
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionResetError("it closed the connection")
        self._received += data
        return self._advance() if len(self._received) == self._receive_bytes else None

    def _advance(self) -> T | None:
        """Sends until the script needs bytes that have not arrived."""
        while len(self._received) == self._receive_bytes:
            received, self._received = self._received, b""
            try:
                step = self._script.send(received) if self._receive_bytes else next(self._script)
            except StopIteration as stop:
                outcome: T = stop.value
                return outcome
            self._receive_bytes = step.receive_bytes
            if self.connection.send(step.send) < len(step.send):
                raise ConnectionResetError("it does not read the few bytes of the handshake")
        return None
