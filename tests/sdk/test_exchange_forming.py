"""How a ring comes about: who is waited for, who is sent away, and what ends it."""

import logging
import socket
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, wait

import pytest
from edl.errors import RoundOver
from edl.exchange import Interrupt, Listener, Ring, handshake
from edl.exchange.farewell import Farewell, Kind

from tests.sdk.loops import LIMIT_S, until
from tests.sdk.rings import KEY, LOCAL, Seats, results

NONCE = b"n" * handshake.NONCE_BYTES


@pytest.fixture
def two() -> Iterator[Seats]:
    """Seats for two members."""
    found = Seats(2)
    yield found
    found.close()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What the exchange logs."""
    caplog.set_level(logging.WARNING, "edl")
    return caplog


def _dial(seats: Seats, rank: int) -> socket.socket:
    return socket.create_connection(seats.listeners[rank].address, timeout=LIMIT_S)


def _ranks(ring: Ring) -> list[bytes]:
    return ring.gather(b"%d" % ring.rank)


def _greet(seats: Seats, rank: int, number: int) -> socket.socket:
    """A member's hello that comes from nobody."""
    made = _dial(seats, rank)
    made.sendall(handshake.hello(handshake.Place(number, 1 - rank, 2), NONCE))
    return made


def _refused(seats: Seats, rank: int) -> bool:
    """A stranger was turned away: who came before has been looked at."""
    with _dial(seats, rank) as stranger:
        stranger.sendall(b"x" * handshake.HELLO_BYTES)
        return stranger.recv(1) == b""


def _says_nothing(link: socket.socket) -> bool:
    """The other side has neither answered nor closed."""
    link.setblocking(False)
    try:
        link.recv(1)
    except BlockingIOError:
        return True
    finally:
        link.settimeout(LIMIT_S)
    return False


def test_strangers_at_the_door_do_not_stop_a_ring(
    two: Seats, said: pytest.LogCaptureFixture
) -> None:
    """Silent, loud, gone again, or a hello and then nonsense: each costs a line at most."""
    silent, loud, gone, forger = (_dial(two, 0) for _ in range(4))
    loud.sendall(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n".ljust(handshake.HELLO_BYTES))
    gone.close()
    forger.sendall(handshake.hello(handshake.Place(1, 1, 2), NONCE) + b"x" * 32)

    refused = "the exchange refuses a connection from 127.0.0.1"

    assert two.run(_ranks) == [[b"0", b"1"]] * 2
    assert [loud.recv(1), silent.recv(1)] == [b"", b""]
    assert [record.getMessage() for record in said.records] == [
        f"{refused}: it does not speak the exchange's protocol",
        f"{refused}: it does not prove that it knows this job's token",
    ]
    for stranger in (silent, loud, forger):
        stranger.close()


def test_a_member_with_another_token_gets_no_ring(
    two: Seats, said: pytest.LogCaptureFixture
) -> None:
    """Nor does the other with it; both say so, and neither says a token."""
    members = [two.member(0, _ranks), two.member(1, _ranks, key=b"guess")]
    wait(members, LIMIT_S, FIRST_COMPLETED)
    both = [two.interrupt(rank, member) for rank, member in enumerate(members)]

    assert all(isinstance(one, RoundOver) for one in both)
    assert any("was refused: it does not prove that it knows" in str(one) for one in both)
    told = [record.getMessage() for record in said.records]
    assert any("does not prove that it knows this job's token" in text for text in told)
    assert not any("guess" in text or KEY.decode() in text for text in told)


def test_a_member_that_comes_with_an_older_round_is_told(two: Seats) -> None:
    """It need not wait for news from elsewhere."""
    ahead = two.member(0, _ranks, number=9)
    (error,) = results([two.member(1, _ranks, number=8)])

    assert isinstance(error, RoundOver)
    assert f"rank 0 ({two.addresses[0]}) is at round 9 already" in str(error)
    assert isinstance(two.interrupt(0, ahead), RoundOver)


def test_one_that_is_ahead_meets_those_that_follow(two: Seats) -> None:
    """Whoever was at an older round comes to the same ring, over the connection that waits."""
    older = two.member(0, _ranks, number=8)
    ahead = two.member(1, _ranks, number=9)

    assert isinstance(results([older])[0], RoundOver)
    assert results([two.member(0, _ranks, number=9), ahead]) == [[b"0", b"1"]] * 2


def test_a_connection_for_a_later_round_is_kept_for_it(two: Seats) -> None:
    """The round for which it was kept answers it."""
    early = _greet(two, 0, 9)
    older = two.member(0, _ranks, number=8)
    assert _refused(two, 0)
    assert _says_nothing(early)
    two.interrupt(0, older)
    later = two.member(0, _ranks, number=9)

    assert early.recv(1) == bytes([handshake.Verdict.WELCOME])
    two.interrupt(0, later)
    early.close()


def test_only_a_few_connections_are_kept(two: Seats) -> None:
    """The oldest are closed; their makers would try again."""
    early = [_greet(two, 0, 100 + index) for index in range(20)]
    older = two.member(0, _ranks, number=8)

    assert [one.recv(1) for one in early[:4]] == [b""] * 4
    two.interrupt(0, older)
    assert _says_nothing(early[4])
    for one in early:
        one.close()


def test_who_says_nothing_is_sent_away(two: Seats, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while; and the oldest at once where there are too many."""
    monkeypatch.setattr("edl.exchange.door._TALK_S", 0.05)
    monkeypatch.setattr("edl.exchange.door._MOST_VISITS", 2)
    silent = [_dial(two, 0) for _ in range(4)]
    waiting = two.member(0, _ranks)

    assert [one.recv(1) for one in silent] == [b""] * 4
    two.interrupt(0, waiting)
    for one in silent:
        one.close()


def test_a_member_whose_port_refuses_is_gone(two: Seats, monkeypatch: pytest.MonkeyPatch) -> None:
    """It listens for as long as it lives: known before networks had their time, and named."""
    monkeypatch.setattr("edl.exchange.reaching._FAILING_S", 600.0)
    two.listeners[1].close()
    with pytest.raises(RoundOver, match=r"rank 1 \(127.0.0.1:\d+\) cannot be reached: .*refused"):
        two.connect(0)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:http", "255.255.255.255:9"])
def test_an_address_that_cannot_be_is_named(
    two: Seats, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """After some tries, since networks of new pods need a moment."""
    monkeypatch.setattr("edl.exchange.reaching._FAILING_S", 0.05)
    two.addresses[1] = address
    with pytest.raises(RoundOver, match=rf"rank 1 \({address}\) cannot be reached"):
        two.connect(0)


def test_one_that_closes_at_once_is_tried_again(two: Seats) -> None:
    """A member whose queue is full does that."""
    with socket.create_server((LOCAL, 0)) as listener:
        two.addresses[1] = f"{LOCAL}:{listener.getsockname()[1]}"
        waiting = two.member(0, _ranks)
        for _ in range(3):
            listener.accept()[0].close()
        two.interrupt(0, waiting)


def test_a_neighbour_that_comes_and_goes_ends_the_round() -> None:
    """Though another is still awaited: rank 1 is never there, rank 2 is interrupted."""
    three = Seats(3)
    first, last = three.member(0, _ranks), three.member(2, _ranks)
    until(lambda: three.waits[0] and three.waits[2])
    three.interrupt(2, last)
    (error,) = results([first])

    assert isinstance(error, RoundOver)
    assert str(error).startswith(f"rank 2 ({three.addresses[2]}): the exchange was interrupted")
    three.close()


@pytest.mark.parametrize("words", [b"", Farewell(Kind.LEFT, 0, "").pack()])
@pytest.mark.parametrize("direction", ["after", "before"])
def test_a_neighbour_that_dies_while_the_ring_forms_is_named(direction: str, words: bytes) -> None:
    """Or that leaves: in both directions, while the other neighbour is still awaited."""
    three = Seats(3)
    awaiting = three.member(0, _ranks)
    made = _play_after(three) if direction == "after" else _play_before(three)
    until(lambda: three.waits[0])
    if words:
        made.send(words if direction == "after" else _framed(words))
    made.close()
    (error,) = results([awaiting])

    rank = 1 if direction == "after" else 2
    assert str(error) == f"rank {rank} ({three.addresses[rank]}) left while the ring was forming"
    three.close()


def _framed(words: bytes) -> bytes:
    return bytes([1, 0, 0, 0]) + len(words).to_bytes(4, "big") + words


def _play_after(three: Seats) -> socket.socket:
    """Rank 1's side of the handshake with rank 0, and nothing else."""
    place = handshake.Place(1, 1, 3)
    made = _accepted(three.listeners[1])
    made.setblocking(True)
    greeting = handshake.read_hello(made.recv(handshake.HELLO_BYTES, socket.MSG_WAITALL))
    script = handshake.accept(greeting, place, KEY, NONCE)
    turn = next(script)
    made.sendall(turn.say)
    with pytest.raises(StopIteration):
        script.send(made.recv(turn.hear, socket.MSG_WAITALL))
    return made


def _accepted(listener: Listener) -> socket.socket:
    """The next connection, once it has come."""
    found: list[socket.socket] = []

    def accepted() -> bool:
        found.extend(filter(None, [listener.accept()]))
        return bool(found)

    until(accepted)
    return found[0]


def _play_before(three: Seats) -> socket.socket:
    """Rank 2's side of the handshake with rank 0, and nothing else."""
    made = _dial(three, 0)
    script = handshake.make(handshake.Place(1, 2, 3), KEY, NONCE)
    turn = next(script)
    made.sendall(turn.say)
    made.sendall(script.send(made.recv(turn.hear, socket.MSG_WAITALL)).say)
    return made


def test_an_interrupt_ends_the_wait_for_others(two: Seats) -> None:
    """Which has no end of its own; that it waited was told after a quarter of a second."""
    waiting = two.member(0, _ranks)
    until(lambda: two.waits[0])
    error = two.interrupt(0, waiting)

    assert "interrupted" in str(error)
    assert two.waits[0][1:] == [None]


def test_bad_calls_are_refused() -> None:
    """A rank that is none, and no token."""
    listener, interrupt = Listener(LOCAL), Interrupt()
    with pytest.raises(ValueError, match="rank 1 is not one of 1"):
        Ring.connect(listener, ["a:1"], 1, number=1, key=KEY, interrupt=interrupt)
    with pytest.raises(ValueError, match="needs the job's token"):
        Ring.connect(listener, ["a:1"], 0, number=1, key=b"", interrupt=interrupt)
    listener.close()
    interrupt.close()
