"""Who is let into a ring: proofs without a token on the wire, both sides without a wire."""

from typing import Any

import pytest
from edl.exchange import handshake
from edl.exchange.handshake import HandshakeError, Outcome, Place, Verdict

KEY = b"token-of-digits"
MAKER, HERE = Place(7, 1, 3), Place(7, 2, 3)
NONCE, OTHER = b"m" * 16, b"a" * 16


def _talk(maker: Any, here: Place = HERE, key: bytes = KEY) -> tuple[Any, Any, list[bytes]]:
    """Plays both sides without a wire: what each made of it, and all that was said."""
    said, heard = [], []
    turn = next(maker)
    said.append(turn.say)
    host = handshake.accept(handshake.read_hello(turn.say), here, key, OTHER)
    mine: Any = None
    try:
        answer = next(host)
        said.append(answer.say)
        try:
            said.append(maker.send(answer.say).say)
            next(maker)
        except (StopIteration, HandshakeError) as ended:
            mine = getattr(ended, "value", ended)
        heard.append(host.send(said[2] if len(said) > 2 else b""))
    except (StopIteration, HandshakeError) as ended:
        return mine, getattr(ended, "value", ended), said
    raise AssertionError(heard)


def test_neighbours_of_one_round_let_each_other_in() -> None:
    """The token is in nothing that they say."""
    mine, theirs, said = _talk(handshake.make(MAKER, KEY, NONCE))

    assert mine == Outcome(Verdict.WELCOME, 7)
    assert theirs is True
    assert KEY not in b"".join(said)


def test_a_maker_without_the_token_is_refused() -> None:
    """It notices as well: the other's proof means nothing to it."""
    mine, theirs, _ = _talk(handshake.make(MAKER, b"guess", NONCE))

    assert isinstance(mine, HandshakeError)
    assert isinstance(theirs, HandshakeError)
    assert "does not prove that it knows this job's token" in str(theirs)


def test_a_maker_of_an_older_round_is_told_so() -> None:
    """In an answer with a proof, so that no stranger can end a round."""
    mine, theirs, _ = _talk(handshake.make(MAKER, KEY, NONCE), HERE._replace(number=9))

    assert mine == Outcome(Verdict.LATER, 9)
    assert theirs is False


@pytest.mark.parametrize("place", [Place(7, 0, 3), Place(7, 1, 4), Place(7, 2, 3)])
def test_a_maker_at_another_place_is_refused(place: Place) -> None:
    """Both places are named."""
    greeting = handshake.read_hello(handshake.hello(place, NONCE))
    with pytest.raises(HandshakeError, match=rf"rank {place.rank} of {place.world}, expected .* 1"):
        next(handshake.accept(greeting, HERE, KEY, OTHER))


def test_a_talk_that_was_recorded_is_of_no_use() -> None:
    """The other side's nonce is new each time."""
    _, _, said = _talk(handshake.make(MAKER, KEY, NONCE))
    host = handshake.accept(handshake.read_hello(said[0]), HERE, KEY, b"b" * 16)
    next(host)
    with pytest.raises(HandshakeError, match="does not prove"):
        host.send(said[2])


def test_another_protocol_is_refused() -> None:
    """A browser, for example."""
    with pytest.raises(HandshakeError, match="does not speak the exchange's protocol"):
        handshake.read_hello(b"GET / HTTP/1.1\r\n".ljust(handshake.HELLO_BYTES))
