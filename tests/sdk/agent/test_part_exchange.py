"""Parts of snapshots between agents, over real sockets."""

import contextlib
import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from edl.agent import part_exchange
from edl.agent.part_exchange import PartClient, PartServer
from edl.collective.handshake import RoundPosition
from edl.collective.transport import listen
from edl.data.snapshot_parts import Slots, SnapshotPart, find_parts, reading
from edl.errors import CheckpointError, RoundOver

KEY = b"token"
HERE, THERE = RoundPosition(3, 0, 2), RoundPosition(3, 1, 2)
CONTENT = os.urandom(3_000_000)


def write(folder: Path, rank: int = 0, content: bytes = CONTENT) -> SnapshotPart:
    """Saves a part."""
    slots = Slots(folder, f"own-{rank}")
    descriptor = slots.open(len(content))
    assert descriptor is not None
    os.pwrite(descriptor, content, 0)
    part = SnapshotPart(3, 7, rank, 1, len(content))
    slots.commit(descriptor, part)
    return part


def content(folder: Path, part: SnapshotPart) -> bytes:
    """What a folder has of a part."""
    with reading(folder, part) as descriptor:
        assert descriptor is not None
        return os.pread(descriptor, part.bytes, 0)


class Neighbour:
    """Another agent, in this process."""

    def __init__(self, folder: Path, limit_bytes: int = 0) -> None:
        folder.mkdir()
        self.folder = folder
        listener = listen("127.0.0.1", 0)
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.server = PartServer(listener, KEY, folder, limit_bytes)
        self.server.enter(THERE)


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[Neighbour]:
    """One that ends with the test."""
    other = Neighbour(tmp_path / "there")
    yield other
    other.server.close()


def send(client: PartClient, neighbour: Neighbour, folder: Path, part: SnapshotPart) -> None:
    """Sends a part to the neighbour."""
    with reading(folder, part) as descriptor:
        assert descriptor is not None
        client.send(neighbour.address, 1, part, descriptor)


def test_parts_go_to_a_neighbour_and_come_back(neighbour: Neighbour, tmp_path: Path) -> None:
    """Whole, also a second time; another agent fetches them from there."""
    client = PartClient(HERE, KEY)
    part = write(tmp_path)
    for _ in range(2):
        send(client, neighbour, tmp_path, part)
    assert content(neighbour.folder, part) == CONTENT
    (tmp_path / "new").mkdir()
    client.fetch(neighbour.address, 1, part, tmp_path / "new", 0)
    assert content(tmp_path / "new", part) == CONTENT
    lost = SnapshotPart(3, 8, 0, 1, 10)
    with pytest.raises(RoundOver, match="no longer has the snapshot of step 8"):
        client.fetch(neighbour.address, 1, lost, tmp_path / "new", 0)


def test_only_members_of_the_round_are_served(
    neighbour: Neighbour, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the token, in another round, or as another process: nothing is given or taken."""
    part = write(tmp_path)
    caplog.set_level(logging.INFO, "edl")
    for client in (
        PartClient(HERE, b"another"),
        PartClient(HERE._replace(number=4), KEY),
        PartClient(HERE._replace(number=2), KEY),
        PartClient(HERE._replace(world_size=3), KEY),
    ):
        with pytest.raises(RoundOver):
            send(client, neighbour, tmp_path, part)
        with pytest.raises(RoundOver):
            client.fetch(neighbour.address, 1, part, tmp_path, 0)
    assert find_parts(neighbour.folder) == {}


def test_strangers_do_no_harm(neighbour: Neighbour, tmp_path: Path) -> None:
    """Those that say nothing, something else, or half of it: members are served beside them."""
    host, _, port = neighbour.address.rpartition(":")
    strangers = [socket.create_connection((host, int(port))) for _ in range(3)]
    strangers[0].sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + b"x" * 100)
    strangers[1].sendall(b"EDLring2")
    part = write(tmp_path)
    send(PartClient(HERE, KEY), neighbour, tmp_path, part)
    assert part in find_parts(neighbour.folder)
    for stranger in strangers:
        stranger.close()


def test_a_crowd_of_silent_strangers_keeps_no_member_out(
    neighbour: Neighbour, tmp_path: Path
) -> None:
    """100 connections of which nobody says anything: parts go to a neighbour, and come back."""
    host, _, port = neighbour.address.rpartition(":")
    strangers = [socket.create_connection((host, int(port))) for _ in range(100)]
    part = write(tmp_path)
    client = PartClient(HERE, KEY)
    send(client, neighbour, tmp_path, part)
    (tmp_path / "new").mkdir()
    client.fetch(neighbour.address, 1, part, tmp_path / "new", 0)
    assert content(tmp_path / "new", part) == CONTENT
    for stranger in strangers:
        stranger.close()


def test_the_address_with_the_most_strangers_makes_room(
    neighbour: Neighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent member that came first stays connected beside them, however many of them come."""
    monkeypatch.setattr(part_exchange, "_MAX_STRANGERS", 3)
    host, _, port = neighbour.address.rpartition(":")
    with contextlib.ExitStack() as stack:

        def come(source: str) -> socket.socket:
            connection = socket.create_connection((host, int(port)), 10, (source, 0))
            return stack.enter_context(connection)

        member = come("127.0.0.1")
        strangers = [come("127.0.0.2") for _ in range(6)]
        assert [stranger.recv(1) for stranger in strangers[:4]] == [b""] * 4
        member.setblocking(False)
        with pytest.raises(BlockingIOError):
            member.recv(1)


class Exhausted(socket.socket):
    """A listener of a process that has no descriptor left when the first connection comes."""

    errors: int = 1

    def accept(self) -> tuple[socket.socket, Any]:
        """Fails once."""
        if self.errors:
            self.errors -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


def test_a_lack_of_descriptors_or_threads_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server accepts again once there are some; the log has one line about it."""
    monkeypatch.setattr(part_exchange, "_PAUSE_S", 0.01)
    (tmp_path / "there").mkdir()
    part = write(tmp_path / "there")
    listener = Exhausted()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    server = PartServer(listener, KEY, tmp_path / "there")
    server.enter(THERE)
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    PartClient(HERE, KEY).fetch(address, 1, part, tmp_path, 0)
    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", _no_thread)
        with pytest.raises(RoundOver):
            PartClient(HERE, KEY).fetch(address, 1, part, tmp_path, 0)
    PartClient(HERE, KEY).fetch(address, 1, part, tmp_path, 0)
    server.close()
    warnings = [
        record.getMessage()
        for record in caplog.records
        if "cannot accept connections" in record.msg
    ]
    assert [warning.rpartition(": ")[2] for warning in warnings] == [
        "[Errno 24] Too many open files",
        "can't start new thread",
    ]


def _no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_handshake_in_drops_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then is no handshake: whoever has the address of a lost agent holds nobody up."""
    monkeypatch.setattr(part_exchange, "_HANDSHAKE_S", 0.1)

    def drip() -> None:
        peer, _ = listener.accept()
        with peer, contextlib.suppress(OSError):
            while True:
                peer.sendall(b"x")
                time.sleep(0.01)

    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=drip)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        part = SnapshotPart(3, 8, 0, 1, 10)
        with pytest.raises(RoundOver, match=r"its handshake took more than 0\.1 s|timed out"):
            PartClient(HERE, KEY).fetch(address, 1, part, tmp_path, 0)
        thread.join()


def test_a_part_for_which_there_is_no_room_is_not_taken(tmp_path: Path) -> None:
    """The one that is there stays, and the sender may try again."""
    other = Neighbour(tmp_path / "there", limit_bytes=4_000_000)
    try:
        part = write(tmp_path)
        client = PartClient(HERE, KEY)
        send(client, other, tmp_path, part)
        larger = write(tmp_path, 1)
        with pytest.raises(RoundOver):
            send(client, other, tmp_path, larger)
        assert list(find_parts(other.folder)) == [part]
        (tmp_path / "new").mkdir()
        with pytest.raises(CheckpointError, match="--snapshot-memory"):
            client.fetch(other.address, 1, part, tmp_path / "new", 1_000)
    finally:
        other.server.close()


def test_a_peer_that_ends_leaves_nothing_half(neighbour: Neighbour, tmp_path: Path) -> None:
    """A part that is cut short is not there."""
    part = write(tmp_path)
    with reading(tmp_path, part) as descriptor:
        assert descriptor is not None
        os.truncate(next(iter(find_parts(tmp_path).values())), 1_000)
        with pytest.raises(RoundOver, match="the part has 1000 bytes instead of "):
            PartClient(HERE, KEY).send(neighbour.address, 1, part, descriptor)
    assert find_parts(neighbour.folder) == {}
