"""The setup of a ring: which connections are awaited, which are refused, and what ends it."""

import contextlib
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pytest
from edl.collective import Interrupt, Listener, Ring, handshake
from edl.collective.close_message import CloseCode, CloseMessage
from edl.collective.connector import Connector
from edl.collective.transport import Waiter
from edl.errors import RoundOver

from tests.sdk.collective.rings import KEY, LOCAL, Seats, results
from tests.sdk.support.loops import LIMIT_S, until

NONCE = b"n" * handshake.NONCE_BYTES


@pytest.fixture
def two() -> Iterator[Seats]:
    """Seats for two members."""
    seats = Seats(2)
    yield seats
    seats.close()


@pytest.fixture
def caplog_warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The warnings that are logged."""
    caplog.set_level(logging.WARNING, "edl")
    return caplog


def _dial(seats: Seats, rank: int) -> socket.socket:
    return socket.create_connection(seats.listeners[rank].address, timeout=LIMIT_S)


def _ranks(ring: Ring) -> list[bytes]:
    return ring.gather(b"%d" % ring.rank)


def _greet(seats: Seats, rank: int, number: int) -> socket.socket:
    """Sends the hello of a member that does not exist."""
    connection = _dial(seats, rank)
    connection.sendall(handshake.pack_hello(handshake.RoundPosition(number, 1 - rank, 2), NONCE))
    return connection


def _refused(seats: Seats, rank: int) -> bool:
    """Whether a stranger was disconnected: then earlier connections were handled, too."""
    with _dial(seats, rank) as stranger:
        stranger.sendall(b"x" * handshake.HELLO_BYTES)
        return stranger.recv(1) == b""


def _is_silent(link: socket.socket) -> bool:
    """Whether the other side has neither answered nor closed."""
    link.setblocking(False)
    try:
        link.recv(1)
    except BlockingIOError:
        return True
    finally:
        link.settimeout(LIMIT_S)
    return False


def test_strangers_do_not_stop_a_ring(
    two: Seats, caplog_warnings: pytest.LogCaptureFixture
) -> None:
    """Silent, of another protocol, closed at once, or with a forged proof: a log line at most."""
    silent, loud, closed, forger = (_dial(two, 0) for _ in range(4))
    loud.sendall(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n".ljust(handshake.HELLO_BYTES))
    closed.close()
    forger.sendall(handshake.pack_hello(handshake.RoundPosition(1, 1, 2), NONCE) + b"x" * 32)

    refused = "the ring refuses a connection from 127.0.0.1"

    assert two.run(_ranks) == [[b"0", b"1"]] * 2
    assert [loud.recv(1), silent.recv(1)] == [b"", b""]
    assert [record.getMessage() for record in caplog_warnings.records] == [
        f"{refused}: it does not speak the ring's protocol",
        f"{refused}: it did not prove that it has this job's token",
    ]
    for stranger in (silent, loud, forger):
        stranger.close()


def test_a_member_with_another_token_gets_no_ring(
    two: Seats, caplog_warnings: pytest.LogCaptureFixture
) -> None:
    """Nor does the other one; both log the reason without a token."""
    members = [two.member(0, _ranks), two.member(1, _ranks, key=b"guess")]
    wait(members, LIMIT_S, FIRST_COMPLETED)
    both = [two.interrupt(rank, member) for rank, member in enumerate(members)]

    assert all(isinstance(error, RoundOver) for error in both)
    assert any("was refused: it did not prove that it has" in str(error) for error in both)
    messages = [record.getMessage() for record in caplog_warnings.records]
    assert any("did not prove that it has this job's token" in text for text in messages)
    assert not any("guess" in text or KEY.decode() in text for text in messages)


def test_a_member_that_comes_with_an_older_round_is_answered_so(two: Seats) -> None:
    """It need not wait until it learns of the newer round elsewhere."""
    ahead = two.member(0, _ranks, number=9)
    (error,) = results([two.member(1, _ranks, number=8)])

    assert isinstance(error, RoundOver)
    assert f"rank 0 ({two.addresses[0]}) is already in round 9" in str(error)
    assert isinstance(two.interrupt(0, ahead), RoundOver)


def test_one_that_is_ahead_meets_those_that_follow(two: Seats) -> None:
    """The member that was in an older round joins the same ring, over the connection that waits."""
    older = two.member(0, _ranks, number=8)
    ahead = two.member(1, _ranks, number=9)

    assert isinstance(results([older])[0], RoundOver)
    assert results([two.member(0, _ranks, number=9), ahead]) == [[b"0", b"1"]] * 2


def test_a_connection_for_a_later_round_is_kept_for_it(two: Seats) -> None:
    """The round for which it was stored answers it."""
    early = _greet(two, 0, 9)
    older = two.member(0, _ranks, number=8)
    assert _refused(two, 0)
    assert _is_silent(early)
    two.interrupt(0, older)
    later = two.member(0, _ranks, number=9)

    assert early.recv(1) == bytes([handshake.Verdict.WELCOME])
    two.interrupt(0, later)
    early.close()


def test_only_a_few_connections_are_kept(two: Seats) -> None:
    """The oldest are closed; their peers would try again."""
    early = [_greet(two, 0, 100 + index) for index in range(20)]
    older = two.member(0, _ranks, number=8)

    assert [connection.recv(1) for connection in early[:4]] == [b""] * 4
    two.interrupt(0, older)
    assert _is_silent(early[4])
    for connection in early:
        connection.close()


def test_a_silent_peer_is_disconnected(two: Seats, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a time-out; and the oldest at once if there are too many."""
    monkeypatch.setattr("edl.collective.acceptor._HANDSHAKE_TIMEOUT_S", 0.05)
    monkeypatch.setattr("edl.collective.acceptor._MAX_PENDING", 2)
    silent = [_dial(two, 0) for _ in range(4)]
    waiting = two.member(0, _ranks)

    assert [connection.recv(1) for connection in silent] == [b""] * 4
    two.interrupt(0, waiting)
    for connection in silent:
        connection.close()


def test_a_member_whose_port_refuses_is_gone(two: Seats, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member listens as long as it lives, so this is detected before other failures time out."""
    monkeypatch.setattr("edl.collective.connector._FAILING_S", 600.0)
    two.listeners[1].close()
    with pytest.raises(RoundOver, match=r"rank 1 \(127.0.0.1:\d+\) cannot be reached: .*refused"):
        two.connect(0)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:http", "255.255.255.255:9"])
def test_an_address_that_cannot_be_is_named(
    two: Seats, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """After several tries, since networks of new pods need a moment."""
    monkeypatch.setattr("edl.collective.connector._FAILING_S", 0.05)
    two.addresses[1] = address
    with pytest.raises(RoundOver, match=rf"rank 1 \({address}\) cannot be reached"):
        two.connect(0)


class FullQueue:
    """A listener whose queue of connections strangers fill, and a member that connects to it."""

    def __init__(self) -> None:
        self.listener = socket.create_server((LOCAL, 0), backlog=0)
        self.address = self.listener.getsockname()
        self.strangers = [socket.socket() for _ in range(8)]
        for stranger in self.strangers:
            stranger.setblocking(False)
            stranger.connect_ex(self.address)
        self.interrupt = Interrupt()
        self.waiter = Waiter(self.interrupt, None)
        place, address = handshake.RoundPosition(1, 0, 2), f"{LOCAL}:{self.address[1]}"
        self.connector = Connector("rank 1", address, place, KEY, self.waiter)

    def empty(self) -> None:
        """Ends the strangers, and what they left in the queue."""
        for stranger in self.strangers:
            stranger.close()
        self.listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.listener.accept()[0].close()

    def close(self) -> None:
        """Closes everything."""
        self.connector.close()
        self.empty()
        self.listener.close()
        self.interrupt.close()


@pytest.fixture
def full() -> Iterator[FullQueue]:
    """One that ends with the test."""
    queue = FullQueue()
    yield queue
    queue.close()


def test_a_peer_whose_queue_was_full_is_connected_to_once_it_is_empty(full: FullQueue) -> None:
    """By an attempt of its own: that of the system would come a second later."""
    full.connector.tick(0.0)
    first_due = full.connector.due_at()
    assert 0.0 < first_due <= 0.1
    full.connector.tick(first_due / 2)
    assert full.connector.due_at() == first_due
    full.empty()
    full.connector.tick(first_due)
    assert first_due < full.connector.due_at() <= first_due + 0.2
    full.listener.settimeout(LIMIT_S)
    peer, _ = full.listener.accept()
    full.connector.tick(full.connector.due_at())  # it is answered: no other attempt
    (event,) = full.waiter.wait(LIMIT_S)
    full.connector.handle(event[0])
    peer.settimeout(LIMIT_S)
    assert handshake.unpack_hello(peer.recv(handshake.HELLO_BYTES)).position.rank == 0
    assert full.connector.due_at() == float("inf")
    peer.close()


def test_a_system_that_never_answers_is_given_up(full: FullQueue) -> None:
    """After two minutes, as a system gives up an attempt of its own."""
    full.connector.tick(0.0)
    while (due := full.connector.due_at()) < 120.0:
        full.connector.tick(due)
    with pytest.raises(RoundOver, match="rank 1 cannot be reached: its system does not answer"):
        full.connector.tick(due)


def test_one_that_closes_at_once_is_tried_again(two: Seats) -> None:
    """A member whose queue is full does that."""
    with socket.create_server((LOCAL, 0)) as listener:
        two.addresses[1] = f"{LOCAL}:{listener.getsockname()[1]}"
        waiting = two.member(0, _ranks)
        for _ in range(3):
            listener.accept()[0].close()
        error = two.interrupt(0, waiting)

    assert "was interrupted" in str(error)


def test_a_neighbour_that_comes_and_goes_ends_the_round() -> None:
    """While another is still awaited: rank 1 never connects, rank 2 is interrupted."""
    three = Seats(3)
    first, last = three.member(0, _ranks), three.member(2, _ranks)
    until(lambda: three.waits[0] and three.waits[2])
    three.interrupt(2, last)
    (error,) = results([first])

    assert isinstance(error, RoundOver)
    assert str(error).startswith(
        f"rank 2 ({three.addresses[2]}): the collective call was interrupted"
    )
    three.close()


@pytest.mark.parametrize("words", [b"", CloseMessage(CloseCode.LEFT, 0, "").pack()])
@pytest.mark.parametrize("direction", ["after", "before"])
def test_a_neighbour_that_dies_while_the_ring_forms_is_named(direction: str, words: bytes) -> None:
    """Or that leaves: in both directions, while the other neighbour is still awaited."""
    three = Seats(3)
    awaiting = three.member(0, _ranks)
    connection = _play_after(three) if direction == "after" else _play_before(three)
    until(lambda: three.waits[0])
    if words:
        connection.send(words if direction == "after" else _framed(words))
    connection.close()
    (error,) = results([awaiting])

    rank = 1 if direction == "after" else 2
    assert str(error) == f"rank {rank} ({three.addresses[rank]}) left while the ring was forming"
    three.close()


def _framed(words: bytes) -> bytes:
    return bytes([1, 0, 0, 0]) + len(words).to_bytes(4, "big") + words


def _play_after(three: Seats) -> socket.socket:
    """Plays rank 1's side of the handshake with rank 0, and nothing else."""
    place = handshake.RoundPosition(1, 1, 3)
    connection = _accepted(three.listeners[1])
    connection.setblocking(True)
    greeting = handshake.unpack_hello(connection.recv(handshake.HELLO_BYTES, socket.MSG_WAITALL))
    script = handshake.respond(greeting, place, KEY, NONCE)
    step = next(script)
    connection.sendall(step.send)
    with pytest.raises(StopIteration):
        script.send(connection.recv(step.receive_bytes, socket.MSG_WAITALL))
    return connection


def _accepted(listener: Listener) -> socket.socket:
    """Waits for the next connection."""
    connections: list[socket.socket] = []

    def accepted() -> bool:
        connections.extend(filter(None, [listener.accept()]))
        return bool(connections)

    until(accepted)
    return connections[0]


def _play_before(three: Seats) -> socket.socket:
    """Plays rank 2's side of the handshake with rank 0, and nothing else."""
    connection = _dial(three, 0)
    script = handshake.initiate(handshake.RoundPosition(1, 2, 3), KEY, NONCE)
    step = next(script)
    connection.sendall(step.send)
    connection.sendall(script.send(connection.recv(step.receive_bytes, socket.MSG_WAITALL)).send)
    return connection


def test_an_interrupt_ends_the_wait_for_others(two: Seats) -> None:
    """The wait has no time-out of its own; it was reported after a quarter of a second."""
    waiting = two.member(0, _ranks)
    until(lambda: two.waits[0])
    error = two.interrupt(0, waiting)

    assert "interrupted" in str(error)
    assert two.waits[0][1:] == [None]


def test_rings_of_a_round_are_connected_in_the_order_of_their_channels(
    caplog_warnings: pytest.LogCaptureFixture,
) -> None:
    """One member is in both; who comes too early for the second one waits, and nobody is refused."""
    three = Seats(3)

    def gather(rank: int, ranks: tuple[int, ...], channel: int) -> list[bytes]:
        with three.connect(rank, ranks=ranks, channel=channel) as ring:
            return ring.gather(b"%d" % rank)

    with ThreadPoolExecutor(3) as pool:
        second = pool.submit(gather, 1, (1, 2), 2)
        until(lambda: three.waits[1])
        first = pool.submit(gather, 0, (0, 2), 1)
        both = pool.submit(lambda: [gather(2, (0, 2), 1), gather(2, (1, 2), 2)])

    assert first.result() == [b"0", b"2"]
    assert second.result() == [b"1", b"2"]
    assert both.result() == [[b"0", b"2"], [b"1", b"2"]]
    assert not caplog_warnings.messages
    three.close()


def test_bad_calls_are_refused() -> None:
    """A rank that is out of range, and an empty token."""
    listener, interrupt = Listener(LOCAL), Interrupt()
    with pytest.raises(ValueError, match="rank 1 is not one of 1"):
        Ring.connect(listener, ["a:1"], 1, number=1, key=KEY, interrupt=interrupt)
    with pytest.raises(ValueError, match="needs the job's token"):
        Ring.connect(listener, ["a:1"], 0, number=1, key=b"", interrupt=interrupt)
    listener.close()
    interrupt.close()


def test_without_a_host_it_listens_on_ipv4_and_ipv6() -> None:
    """A pod may have an address of IPv6 alone."""
    listener = Listener("")
    for host in ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]:
        socket.create_connection((host, listener.address[1]), timeout=LIMIT_S).close()
    listener.close()
