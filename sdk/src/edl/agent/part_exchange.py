"""Sends parts of snapshots between agents, which authenticate each other with the job's token.

After the ring's handshake (`edl.collective.handshake`), the initiator sends a request, and one of
the two agents sends the bytes of a part. The bytes are neither encrypted nor signed. Needs numpy.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from edl import clock
from edl.bounded_warnings import BoundedWarnings
from edl.collective import handshake
from edl.collective.handshake import ClientHello, HandshakeError, RoundPosition, Script, Verdict
from edl.data.snapshot_parts import COPY, Slots, SnapshotPart, find_parts, reading
from edl.errors import EdlError, RoundOver, one_line
from edl.master import protocol

log = logging.getLogger("edl")
T = TypeVar("T")

_LENGTH = struct.Struct("!I")
_MAX_MESSAGE = 4_096
_CHUNK_BYTES = 1 << 20
_SILENCE_S = 10.0
"""A peer that neither sends nor receives for this long is disconnected."""
_HANDSHAKE_S = 5.0
"""Time limit for the whole handshake, however often the peer sends a byte."""
_MAX_STRANGERS = 64
"""Limit for connections that are not authenticated yet; at the limit, a new one replaces an old one."""
_MAX_MEMBERS = 1_024
_PAUSE_S = 0.5
"""Pause before accepting again, if the process has run out of descriptors or threads."""
_GET, _PUT = "get", "put"


class PartServer:
    """Serves this agent's parts and receives parts from others, with one thread per connection."""

    def __init__(
        self, listener: socket.socket, key: bytes, folder: Path, limit_bytes: int = 0
    ) -> None:
        """Refuses all peers until `enter` is called.

        Args:
            listener: The socket at which other agents connect; `close` closes it.
            key: The job's token.
            folder: The folder of parts.
            limit_bytes: See `Slots`.
        """
        self._listener, self._key = listener, key
        self._folder, self._limit_bytes = folder, limit_bytes
        self._position: RoundPosition | None = None
        self._refusals = BoundedWarnings(log)
        self._closed = threading.Event()
        self._strangers: dict[socket.socket, object] = {}
        """Connection -> host, for peers that are not authenticated, oldest first; guarded by the lock."""
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(_MAX_MEMBERS)
        self._writing = threading.Lock()
        threading.Thread(target=self._accept, name="edl-parts", daemon=True).start()

    def enter(self, position: RoundPosition) -> None:
        """Serves the members of this round, and no others."""
        self._position = position

    def close(self) -> None:
        """Stops serving."""
        self._position = None
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        is_failing = False
        while not self._closed.is_set():
            try:
                connection, peer = self._listener.accept()
                self._admit(connection, peer[0])
            except (OSError, RuntimeError) as error:  # noqa: PERF203 - closed, or out of descriptors or threads
                if not is_failing and not self._closed.is_set():
                    log.warning("cannot accept connections for snapshots: %s", one_line(error))
                is_failing = True
                self._closed.wait(_PAUSE_S)
            else:
                is_failing = False

    def _admit(self, connection: socket.socket, host: object) -> None:
        """Starts the thread of a connection.

        Raises:
            RuntimeError: The process cannot start another thread.
        """
        with self._lock:
            if len(self._strangers) >= _MAX_STRANGERS:
                self._end_stranger()
            self._strangers[connection] = host
        try:
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._strangers.pop(connection, None)
            connection.close()
            raise

    def _end_stranger(self) -> None:
        """Ends the oldest connection of the host that has the most unauthenticated connections.

        Each member has a different host, so members are affected only if strangers use dozens of hosts.
        """
        ((heaviest, _),) = Counter(self._strangers.values()).most_common(1)
        oldest = next(peer for peer, host in self._strangers.items() if host == heaviest)
        del self._strangers[oldest]
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                try:
                    is_member = self._is_member(connection)
                finally:
                    with self._lock:
                        self._strangers.pop(connection, None)
                if is_member and self._free.acquire(blocking=False):
                    try:
                        self._answer(connection, _receive_message(connection))
                    finally:
                        self._free.release()
        except HandshakeError as error:
            self._refusals.warn("refused a connection for snapshots: %s", error)
        except (OSError, EdlError, ValueError, LookupError, TypeError) as error:
            log.info("could not exchange a snapshot: %s", one_line(error))

    def _is_member(self, connection: socket.socket) -> bool:
        _send_at_once(connection)
        until_s = clock.monotonic_s() + _HANDSHAKE_S
        hello = _run(handshake.receive_hello(), connection, until_s)
        position = self._position
        if position is None or not isinstance(hello, ClientHello):
            return False
        nonce = secrets.token_bytes(handshake.NONCE_BYTES)
        script = handshake.respond(hello, position, self._key, nonce)
        return _run(script, connection, until_s) is True

    def _answer(self, connection: socket.socket, request: protocol.Json) -> None:
        part = SnapshotPart(**{name: int(value) for name, value in dict(request["part"]).items()})
        if request["call"] == _PUT:
            self._take(connection, part)
            return
        with reading(self._folder, part) as descriptor:
            _send_message(connection, {"has": descriptor is not None})
            if descriptor is not None:
                _send_part(connection, descriptor, part.bytes)

    def _take(self, connection: socket.socket, part: SnapshotPart) -> None:
        with self._writing:
            if part in find_parts(self._folder):
                _send_message(connection, {"wants": False})
                return
            _receive_part(connection, part, self._folder, self._limit_bytes, first={"wants": True})
        _send_message(connection, {"has": True})


class PartClient:
    """A client of another agent of the round."""

    def __init__(self, position: RoundPosition, key: bytes) -> None:
        """Makes no call yet.

        Args:
            position: This agent's position in the round.
            key: The job's token.
        """
        self._position, self._key = position, key

    def send(self, address: str, rank: int, part: SnapshotPart, descriptor: int) -> None:
        """Sends a part to the agent of a rank, unless that agent already has it.

        Raises:
            RoundOver: The agent cannot be reached, or has no memory left.
        """
        with self._connect(address, rank) as connection:
            _send_message(connection, {"call": _PUT, "part": asdict(part)})
            if _receive_message(connection)["wants"]:
                _send_part(connection, descriptor, part.bytes)
                _receive_message(connection)

    def fetch(
        self, address: str, rank: int, part: SnapshotPart, folder: Path, limit_bytes: int
    ) -> None:
        """Fetches a part from the agent of a rank.

        Raises:
            CheckpointError: There is not enough memory here.
            RoundOver: The agent cannot be reached, or no longer has the part.
        """
        with self._connect(address, rank) as connection:
            _send_message(connection, {"call": _GET, "part": asdict(part)})
            if not _receive_message(connection)["has"]:
                raise RoundOver(f"{address} no longer has the snapshot of step {part.step}")
            _receive_part(connection, part, folder, limit_bytes)

    @contextlib.contextmanager
    def _connect(self, address: str, rank: int) -> Iterator[socket.socket]:
        host, _, port = address.rpartition(":")
        claimed = handshake.previous_position(self._position._replace(rank=rank))
        nonce = secrets.token_bytes(handshake.NONCE_BYTES)
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _SILENCE_S) as connection:
                _send_at_once(connection)
                script = handshake.initiate(claimed, self._key, nonce)
                outcome = _run(script, connection, clock.monotonic_s() + _HANDSHAKE_S)
                if outcome.verdict is not Verdict.WELCOME:
                    raise RoundOver(f"{address} is already in round {outcome.number}")
                yield connection
        except (OSError, HandshakeError, ValueError, LookupError, TypeError) as error:
            raise RoundOver(
                f"cannot exchange snapshots with {address}: {one_line(error)}"
            ) from error


def _send_at_once(connection: socket.socket) -> None:
    """Makes a socket send small messages at once, without up to 40 ms of waiting for acknowledgements."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _run(script: Script[T], connection: socket.socket, until_s: float) -> T:
    """Runs one side of a handshake, then sets the socket's timeout for the exchange.

    Args:
        script: The side to run.
        connection: A blocking socket.
        until_s: Monotonic time by which the whole handshake must end.
    """
    step = next(script)
    while True:
        connection.settimeout(_left_s(until_s))
        connection.sendall(step.send)
        received = _receive(connection, step.receive_bytes, until_s)
        try:
            step = script.send(received)
        except StopIteration as stop:
            connection.settimeout(_SILENCE_S)
            outcome: T = stop.value
            return outcome


def _left_s(until_s: float) -> float:
    left_s = until_s - clock.monotonic_s()
    if left_s <= 0:
        raise ConnectionAbortedError(f"its handshake took more than {_HANDSHAKE_S:g} s")
    return left_s


def _receive(connection: socket.socket, count: int, until_s: float | None = None) -> bytes:
    received = bytearray()
    while len(received) < count:
        if until_s is not None:
            connection.settimeout(_left_s(until_s))
        chunk = connection.recv(count - len(received))
        if not chunk:
            raise ConnectionResetError("it closed the connection")
        received += chunk
    return bytes(received)


def _receive_into(connection: socket.socket, buffer: memoryview) -> int:
    count = connection.recv_into(buffer)
    if not count:
        raise ConnectionResetError("it closed the connection")
    return count


def _send_message(connection: socket.socket, message: protocol.Json) -> None:
    raw = json.dumps(message).encode()
    connection.sendall(_LENGTH.pack(len(raw)) + raw)


def _receive_message(connection: socket.socket) -> protocol.Json:
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
    if length > _MAX_MESSAGE:
        raise ValueError(f"a message of {length} bytes is not one of EDL's")
    message: protocol.Json = json.loads(_receive(connection, length))
    return message


def _send_part(connection: socket.socket, descriptor: int, size: int) -> None:
    """Sends the bytes of a part; ends the connection if the file has become shorter."""
    with open(descriptor, "rb", closefd=False) as file:
        sent = connection.sendfile(file, 0, size)
    if sent != size:
        raise ConnectionAbortedError(f"the part has {sent} bytes instead of {size}")


def _receive_part(
    connection: socket.socket,
    part: SnapshotPart,
    folder: Path,
    limit_bytes: int,
    first: protocol.Json | None = None,
) -> None:
    """Receives the bytes of a part into a slot; sends `first` once the slot is allocated."""
    slots = Slots(folder, f"{COPY}-{part.rank}", limit_bytes)
    descriptor = slots.open(part.bytes)
    if descriptor is None:
        raise ConnectionResetError("the previous part is still being read")
    try:
        if first is not None:
            _send_message(connection, first)
        buffer, offset = memoryview(bytearray(_CHUNK_BYTES)), 0
        while offset < part.bytes:
            count = _receive_into(connection, buffer[: part.bytes - offset])
            os.pwrite(descriptor, buffer[:count], offset)
            offset += count
    except BaseException:
        os.close(descriptor)
        raise
    slots.commit(descriptor, part)
