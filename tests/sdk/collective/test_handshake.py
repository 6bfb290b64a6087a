"""The handshake of neighbours: proofs without the token on the wire, both sides without sockets."""

import hmac
import struct
from typing import Any

import pytest
from edl.collective import handshake
from edl.collective.handshake import HandshakeError, Outcome, RoundPosition, Verdict

KEY = b"token-of-digits"
INITIATOR, RESPONDER = RoundPosition(7, 1, 3), RoundPosition(7, 2, 3)
NONCE, OTHER = b"m" * 16, b"a" * 16


def _run_handshake(
    initiator: Any, position: RoundPosition = RESPONDER, key: bytes = KEY
) -> tuple[Any, Any, list[bytes]]:
    """Runs both sides without sockets; returns both outcomes and all messages."""
    messages, outcomes = [], []
    step = next(initiator)
    messages.append(step.send)
    responder = handshake.respond(handshake.unpack_hello(step.send), position, key, OTHER)
    initiated: Any = None
    try:
        answer = next(responder)
        messages.append(answer.send)
        try:
            messages.append(initiator.send(answer.send).send)
            next(initiator)
        except (StopIteration, HandshakeError) as stop:
            initiated = getattr(stop, "value", stop)
        outcomes.append(responder.send(messages[2] if len(messages) > 2 else b""))
    except (StopIteration, HandshakeError) as stop:
        return initiated, getattr(stop, "value", stop), messages
    raise AssertionError(outcomes)


def test_neighbours_of_one_round_let_each_other_in() -> None:
    """The token is not in any of their messages."""
    initiated, responded, messages = _run_handshake(handshake.initiate(INITIATOR, KEY, NONCE))

    assert initiated == Outcome(Verdict.WELCOME, 7)
    assert responded is True
    assert KEY not in b"".join(messages)


def test_an_initiator_without_the_token_is_refused() -> None:
    """It refuses too: it cannot verify the responder's proof."""
    initiated, responded, _ = _run_handshake(handshake.initiate(INITIATOR, b"guess", NONCE))

    assert isinstance(initiated, HandshakeError)
    assert isinstance(responded, HandshakeError)
    assert "did not prove that it has this job's token" in str(responded)


def test_an_initiator_of_an_older_round_is_answered_so() -> None:
    """In an answer with a proof, so that no stranger can end a round."""
    initiated, responded, _ = _run_handshake(
        handshake.initiate(INITIATOR, KEY, NONCE), RESPONDER._replace(number=9)
    )

    assert initiated == Outcome(Verdict.LATER, 9)
    assert responded is False


@pytest.mark.parametrize(
    "place",
    [
        RoundPosition(7, 0, 3),
        RoundPosition(7, 1, 4),
        RoundPosition(7, 2, 3),
        RoundPosition(7, 1, 3, channel=1),
    ],
)
def test_an_initiator_at_another_place_is_refused(place: RoundPosition) -> None:
    """Both positions are named."""
    greeting = handshake.unpack_hello(handshake.pack_hello(place, NONCE))
    with pytest.raises(
        HandshakeError, match=rf"rank {place.rank} of {place.world_size}, but rank 1"
    ):
        next(handshake.respond(greeting, RESPONDER, KEY, OTHER))


def test_a_recorded_handshake_cannot_be_replayed() -> None:
    """The responder's nonce is new each time."""
    _, _, messages = _run_handshake(handshake.initiate(INITIATOR, KEY, NONCE))
    responder = handshake.respond(handshake.unpack_hello(messages[0]), RESPONDER, KEY, b"b" * 16)
    next(responder)
    with pytest.raises(HandshakeError, match="did not prove"):
        responder.send(messages[2])


def test_another_protocol_is_refused() -> None:
    """A browser, for example."""
    with pytest.raises(HandshakeError, match="does not speak the ring's protocol"):
        handshake.unpack_hello(b"GET / HTTP/1.1\r\n".ljust(handshake.HELLO_BYTES))


def test_a_verdict_of_no_known_version_is_refused() -> None:
    """Even with a right proof: a later version of the SDK may have more of them."""
    script = handshake.initiate(INITIATOR, KEY, NONCE)
    hello = next(script).send
    answer = struct.pack("!BQ16s", 7, 7, OTHER)
    proof = hmac.new(KEY, b"answer" + hello + answer, "sha256").digest()
    with pytest.raises(HandshakeError, match="the verdict 7, which this version does not know"):
        script.send(answer + proof)
