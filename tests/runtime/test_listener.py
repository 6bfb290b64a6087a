"""A listener and its connections on a loop of the test, with time limits that are over at once or never."""

import asyncio
import errno
import gc
import socket
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from runtime.connection import Bounds, GuardedConnection
from runtime.drop_counts import Drop, DropCounts
from runtime.listener import Listener, bind
from runtime.tls import Certificates
from tests.reconciler.waiting import LIMIT_S, until_in_loop
from tests.runtime.servers import make_ca, make_leaf

NEVER_S = 3600.0
CALM = Bounds(
    max_connections=100,
    max_per_address=100,
    handshake_s=NEVER_S,
    head_s=NEVER_S,
    body_s=NEVER_S,
    answer_s=NEVER_S,
    idle_s=NEVER_S,
)


class Echo(asyncio.Protocol):
    """Sends back what it gets; notes what it was told."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls
        self.connection: GuardedConnection | None = None
        self.most_bytes = 0
        """Received at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Finds its connection."""
        self.transport = transport
        protocol = transport.get_protocol()
        assert isinstance(protocol, GuardedConnection)
        self.connection = protocol

    def data_received(self, data: bytes) -> None:
        """Answers."""
        self.most_bytes = max(self.most_bytes, len(data))
        assert isinstance(self.transport, asyncio.WriteTransport)
        self.transport.write(data)

    def pause_writing(self) -> None:
        """Notes it."""
        self.calls.append("pause")

    def resume_writing(self) -> None:
        """Notes it."""
        self.calls.append("resume")

    def connection_lost(self, _: Exception | None) -> None:
        """Notes it."""
        self.calls.append("lost")


class Server:
    """A listener at a port, with all that its protocols were told."""

    def __init__(
        self,
        bounds: Bounds = CALM,
        listening: socket.socket | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self.calls: list[str] = []
        self.protocols: list[Echo] = []
        self.drops = DropCounts()
        self.socket = listening or bind("127.0.0.1:0")
        self.listener = Listener(self.socket, self._protocol, bounds, self.drops, certificates)
        self.address = self.socket.getsockname()
        self.listener.start()

    def _protocol(self) -> Echo:
        self.protocols.append(Echo(self.calls))
        return self.protocols[-1]

    def dropped(self, reason: Drop) -> int:
        """How many connections were dropped for a reason."""
        return int(self.drops.totals[reason])

    async def opened(self) -> "Peer":
        """A peer that has had an answer."""
        peer = Peer(*await asyncio.open_connection(*self.address))
        assert await peer.echo() == b"x"
        return peer

    def connection(self) -> GuardedConnection:
        """The newest."""
        connection = self.protocols[-1].connection
        assert connection is not None
        return connection


class Peer:
    """A caller."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def echo(self) -> bytes:
        """Sends a byte, and reads one."""
        self.writer.write(b"x")
        return await self.reader.read(1)

    async def end(self) -> bytes:
        """What comes up to the end of the connection."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


def _play(scene: Callable[[], Awaitable[None]]) -> None:
    async def play() -> None:
        async with asyncio.timeout(LIMIT_S):
            await scene()

    asyncio.run(play())


def test_a_peer_that_does_not_read_its_answer_is_dropped() -> None:
    """Once its deadline is over; it is counted."""

    async def scene() -> None:
        server = Server(replace(CALM, answer_s=0.0))
        peer = await server.opened()
        server.connection().pause_writing()
        await peer.end()
        peer.writer.close()
        await server.listener.close()

        assert server.calls == ["pause", "lost"]
        assert server.dropped(Drop.ANSWER) == 1

    _play(scene)


def test_bytes_of_strangers_are_received_in_small_pieces() -> None:
    """Until their request is admitted: the first bytes of thousands are in memory at once."""

    async def scene() -> None:
        server = Server()
        peer = await server.opened()
        body = b"\r\n\r\n" + b"b" * 100_000
        most_bytes = []
        for _ in range(2):
            peer.writer.write(body)
            await peer.reader.readexactly(len(body))
            most_bytes.append(server.protocols[-1].most_bytes)
            server.connection().admit()
        peer.writer.close()
        await server.listener.close()

        assert most_bytes[0] <= 16 * 1024 < most_bytes[1]

    _play(scene)


def test_a_peer_that_reads_in_time_goes_on() -> None:
    """The deadline of one answer does not end the next one."""

    async def scene() -> None:
        server = Server(replace(CALM, answer_s=0.0))
        peer = await server.opened()
        server.connection().pause_writing()
        server.connection().resume_writing()

        assert await peer.echo() == b"x"
        assert server.calls == ["pause", "resume"]
        assert server.dropped(Drop.ANSWER) == 0
        peer.writer.close()
        await server.listener.close()

    _play(scene)


def test_a_peer_that_goes_meanwhile_is_not_counted() -> None:
    """Its deadline ends with it."""

    async def scene() -> None:
        server = Server()
        peer = await server.opened()
        connection = server.connection()
        connection.pause_writing()
        peer.writer.close()
        await until_in_loop(lambda: "lost" in server.calls)
        connection.drop(None)  # by the table, which had chosen it before
        await server.listener.close()

        assert server.dropped(Drop.ANSWER) == 0

    _play(scene)


def test_a_connection_that_nobody_may_have_is_closed_at_once() -> None:
    """All places of its address are busy with answers; it is counted, and the others stay."""

    async def scene() -> None:
        server = Server(replace(CALM, max_per_address=1))
        first = await server.opened()
        server.connection().begin_answer()
        reader, writer = await asyncio.open_connection(*server.address)

        assert await Peer(reader, writer).end() == b""
        assert server.dropped(Drop.FULL) == 1
        assert await first.echo() == b"x"
        writer.close()
        first.writer.close()
        await server.listener.close()

    _play(scene)


class Exhausted(socket.socket):
    """A socket that listens in a process whose descriptors are used up once."""

    failures = 1
    error = errno.EMFILE

    def accept(self) -> tuple[socket.socket, object]:
        """Fails the first time."""
        if self.failures:
            self.failures -= 1
            raise OSError(self.error, "no")
        return super().accept()


def _exhausted() -> Exhausted:
    listening = Exhausted()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening


def test_without_descriptors_it_pauses_and_accepts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than trying without pause; who came meanwhile is served."""
    monkeypatch.setattr("runtime.listener._PAUSE_S", 0.0)

    async def scene() -> None:
        server = Server(listening=_exhausted())
        peer = await server.opened()

        assert server.dropped(Drop.FULL) == 1
        peer.writer.close()
        await server.listener.close()

    _play(scene)


def test_it_may_be_closed_in_that_pause() -> None:
    """Nothing is accepted afterwards."""

    async def scene() -> None:
        server = Server(listening=_exhausted())
        _, writer = await asyncio.open_connection(*server.address)
        await until_in_loop(lambda: server.dropped(Drop.FULL))
        await server.listener.close()
        await asyncio.sleep(0)

        assert server.protocols == []
        writer.close()

    _play(scene)


def test_its_end_ends_handshakes_that_are_under_way(tmp_path: Path) -> None:
    """Their peers see the end of the connection; none of them is counted as a failed handshake."""
    ca, _ = make_ca(tmp_path)
    certificates = Certificates(make_leaf(ca, tmp_path / "leaf.pem"))

    async def scene() -> None:
        server = Server(certificates=certificates)
        reader, writer = await asyncio.open_connection(*server.address)
        opening = server.listener._opening  # noqa: SLF001 - nothing shows a silent peer
        await until_in_loop(lambda: opening)
        await server.listener.close()

        assert await Peer(reader, writer).end() == b""
        assert server.dropped(Drop.HANDSHAKE) == 0
        writer.close()

    _play(scene)


@pytest.fixture
def uncollected() -> Iterator[WeakSet[GuardedConnection]]:
    """All connections of the test that are in memory, while nobody collects cycles."""
    connections: WeakSet[GuardedConnection] = WeakSet()

    class Known(GuardedConnection):
        """A connection that the set has."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            connections.add(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.listener.GuardedConnection", Known)
        gc.disable()
        yield connections
        gc.enable()


@pytest.mark.parametrize(
    ("bounds", "words", "peers"),
    [
        (replace(CALM, max_connections=1), b"", 3),
        (replace(CALM, handshake_s=0.01), b"", 1),
        (CALM, b"GET / HTTP/1.1\r\n\r\n", 1),
    ],
    ids=["dropped for another", "too slow", "no TLS"],
)
def test_a_handshake_that_fails_frees_its_memory_at_once(
    tmp_path: Path,
    uncollected: WeakSet[GuardedConnection],
    bounds: Bounds,
    words: bytes,
    peers: int,
) -> None:
    """Collections are rare: a few hundred strangers a second would be more than the server may have."""
    ca, _ = make_ca(tmp_path)
    certificates = Certificates(make_leaf(ca, tmp_path / "leaf.pem"))

    async def scene() -> None:
        server = Server(bounds, certificates=certificates)
        writers = []
        for _ in range(peers):
            _, writer = await asyncio.open_connection(*server.address)
            writer.write(words)
            writers.append(writer)
        await until_in_loop(
            lambda: server.dropped(Drop.HANDSHAKE) + server.dropped(Drop.FULL) == max(1, peers - 1)
        )
        await until_in_loop(lambda: len(uncollected) == (peers > 1))
        await server.listener.close()
        for writer in writers:
            writer.close()

    _play(scene)


def test_silent_connections_with_tls_take_little_memory(tmp_path: Path) -> None:
    """Asyncio's buffer of 256 KiB for each would let strangers fill a server's memory."""
    ca, _ = make_ca(tmp_path)
    certificates = Certificates(make_leaf(ca, tmp_path / "leaf.pem"))
    count = 20

    async def scene() -> None:
        server = Server(certificates=certificates)
        tracemalloc.start()
        peers = [await asyncio.open_connection(*server.address) for _ in range(count)]
        for _, writer in peers:
            writer.write(b"\x16\x03\x01")
        opening = server.listener._opening  # noqa: SLF001 - nothing shows a silent peer
        await until_in_loop(lambda: len(opening) == count)
        await asyncio.sleep(0)
        memory, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await server.listener.close()
        for _, writer in peers:
            writer.close()

        assert memory / count < 128 * 1024

    _play(scene)


def test_without_a_host_it_listens_on_ipv4_and_ipv6() -> None:
    """The pods of a cluster may have IPv6 alone, and a node's kernel IPv4 alone."""
    with bind(":0") as listening:
        port = listening.getsockname()[1]
        hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
        for host in hosts:
            socket.create_connection((host, port), timeout=LIMIT_S).close()
