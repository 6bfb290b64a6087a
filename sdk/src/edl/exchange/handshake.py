"""How two neighbours prove to each other that they belong to one job and one round (pure).

The maker of a connection says hello with its place and a nonce; the other answers with its verdict,
a nonce of its own and a proof; then the maker proves itself. A proof is HMAC-SHA256 with the job's
token as key over the whole talk so far, so no token travels and no recorded talk can be played
again. What follows on the connection is neither encrypted nor signed.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Generator
from enum import IntEnum
from typing import NamedTuple, TypeVar

NONCE_BYTES = 16
_MAGIC = b"EDLring1"
_HELLO = struct.Struct("!8sQII16s")
_ANSWER = struct.Struct("!BQ16s")
_PROOF_BYTES = 32
HELLO_BYTES = _HELLO.size

T = TypeVar("T")


class Turn(NamedTuple):
    """One side's part in a talk: what it says, then how much it hears before it goes on."""

    say: bytes
    hear: int


Script = Generator[Turn, bytes, T]
"""One side of a talk: yields its turns, is sent what was heard, returns the outcome."""


class Place(NamedTuple):
    """Where somebody stands: in which round, at which rank, among how many."""

    number: int
    rank: int
    world: int


class Hello(NamedTuple):
    """A maker's first words."""

    place: Place
    raw: bytes
    """As it came, because proofs are about it."""


class Verdict(IntEnum):
    """What the other side thinks of a hello."""

    WELCOME = 0
    LATER = 1
    """It is at a later round: the maker's is over."""


class Outcome(NamedTuple):
    """What a maker learns."""

    verdict: Verdict
    number: int
    """The other side's round."""


class HandshakeError(Exception):
    """The other side is not one of ours; the text says what it lacks."""


def hello(place: Place, nonce: bytes) -> bytes:
    """A maker's first words."""
    return _HELLO.pack(_MAGIC, *place, nonce)


def read_hello(raw: bytes) -> Hello:
    """Understands first words.

    Raises:
        HandshakeError: They are not of this protocol.
    """
    magic, number, rank, world, _ = _HELLO.unpack(raw)
    if magic != _MAGIC:
        raise HandshakeError("it does not speak the exchange's protocol")
    return Hello(Place(number, rank, world), raw)


def make(place: Place, key: bytes, nonce: bytes) -> Script[Outcome]:
    """The maker's side.

    Raises:
        HandshakeError: The other side does not know the token.
    """
    said = hello(place, nonce)
    heard = yield Turn(said, _ANSWER.size + _PROOF_BYTES)
    answer, proof = heard[: _ANSWER.size], heard[_ANSWER.size :]
    if not hmac.compare_digest(proof, _proof(key, b"answer", said, answer)):
        raise HandshakeError("it does not prove that it knows this job's token")
    verdict, number, _ = _ANSWER.unpack(answer)
    if verdict == Verdict.WELCOME:
        yield Turn(_proof(key, b"make", said, answer), 0)
    return Outcome(Verdict(verdict), number)


def greet() -> Script[Hello | bool]:
    """The other side's begin: hears a hello.

    Raises:
        HandshakeError: What came is not of this protocol.
    """
    return read_hello((yield Turn(b"", HELLO_BYTES)))


def accept(greeting: Hello, here: Place, key: bytes, nonce: bytes) -> Script[Hello | bool]:
    """The other side, once it has heard the hello.

    Returns:
        Whether the maker is the neighbour that was waited for; False after it was told that its
        round is over.

    Raises:
        HandshakeError: The maker does not know the token, or stands where nobody was expected.
    """
    place = greeting.place
    verdict = Verdict.LATER if place.number < here.number else Verdict.WELCOME
    if verdict is Verdict.WELCOME and place != before(here):
        raise HandshakeError(
            f"it says rank {place.rank} of {place.world}, expected was {before(here).rank}"
            f" of {here.world} in round {here.number}"
        )
    answer = _ANSWER.pack(verdict, here.number, nonce)
    said = answer + _proof(key, b"answer", greeting.raw, answer)
    if verdict is Verdict.LATER:
        yield Turn(said, 0)
        return False
    proof = yield Turn(said, _PROOF_BYTES)
    if not hmac.compare_digest(proof, _proof(key, b"make", greeting.raw, answer)):
        raise HandshakeError("it does not prove that it knows this job's token")
    return True


def before(here: Place) -> Place:
    """Where the one stands whose connection is expected here."""
    return here._replace(rank=(here.rank - 1) % here.world)


def _proof(key: bytes, side: bytes, said: bytes, answer: bytes) -> bytes:
    return hmac.new(key, side + said + answer, "sha256").digest()
