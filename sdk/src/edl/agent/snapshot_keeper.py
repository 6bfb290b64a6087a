"""Keeps snapshots of an agent's processes in this pod's memory and at the next agent of the round."""

from __future__ import annotations

import importlib
import logging
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edl import clock
from edl.agent import holdings
from edl.agent.environment import Place
from edl.agent.snapshot_folder import SnapshotFolder, open_folder
from edl.data import snapshots
from edl.data.snapshot_parts import OWN, SnapshotPart, find_parts, reading, remove
from edl.errors import EdlError, SettingError, one_line
from edl.master.protocol import Round
from edl.master.round_store import RoundStore
from edl.master.settings import Settings

if TYPE_CHECKING:
    from edl.agent.part_exchange import PartClient, PartServer

log = logging.getLogger("edl")

_LOOK_S = 0.05
"""How often to look for new snapshots of the processes."""
_RESTORE_S = 600.0
"""How long all agents may take to fetch the parts from which their processes start."""
_PAUSE_S = 1.0
"""Pause after a copy that failed."""


class SnapshotKeeper:
    """The snapshots of an agent.

    The agent's main thread calls it, while another thread copies parts to the next agent.
    """

    def __init__(self, settings: Settings, limit_bytes: int, folder: SnapshotFolder) -> None:
        """Listens for the other agents.

        Args:
            settings: Settings of this agent.
            limit_bytes: Memory limit for all parts; 0 if only the file system limits them.
            folder: Folder in memory.

        Raises:
            SettingError: The address or the port of the settings cannot be used.
        """
        self._folder, self._limit_bytes = folder, limit_bytes
        self._key = settings.token.encode()
        exchange = importlib.import_module("edl.agent.part_exchange")
        transport = importlib.import_module("edl.collective.transport")
        port = settings.exchange_port
        try:
            listener: socket.socket = transport.listen("" if port else settings.address, port)
        except OSError as error:
            raise SettingError(
                "cannot listen on EDL_ADDRESS and EDL_EXCHANGE_PORT, where other agents connect: "
                f"{one_line(error)}"
            ) from error
        self.port = int(listener.getsockname()[1])
        self._exchange: Any = exchange
        self._server: PartServer = exchange.PartServer(
            listener, self._key, folder.path, limit_bytes
        )
        self._closed = threading.Event()
        self._changed = threading.Condition()
        self._target: tuple[PartClient, str, int] | None = None
        """Client, address and rank of the next agent of the round."""
        self._number = 0
        self._unsent: set[SnapshotPart] = set()
        """Parts of this round's initial snapshot that this agent has to copy, because no agent of a lower
        rank has them."""
        self._sent: set[SnapshotPart] = set()
        self._thread = threading.Thread(target=self._copy, name="edl-snapshots", daemon=True)
        self._thread.start()

    def enter(self, round_: Round, place: Place, store: RoundStore) -> None:
        """Fetches the parts from which the processes of a round start; all agents must call it.

        Raises:
            CheckpointError: There is not enough memory for the parts.
            RoundOver: An agent is lost.
        """
        position = self._exchange.RoundPosition(round_.number, round_.rank, round_.world_size)
        with self._changed:
            self._target = None
        self._server.enter(position)
        client = self._exchange.PartClient(position, self._key)
        store.set(_held(round_.rank), holdings.dump(find_parts(self._path)))
        keys = [_held(rank) for rank in range(round_.world_size)]
        announced = store.get_all(keys)
        choice = holdings.choose([holdings.load(announced[key]) for key in keys])
        if choice is not None:
            self._fetch(choice, round_, place, client)
        self._tidy(choice)
        store.set(_restored(round_.rank), b"1")
        store.wait([_restored(rank) for rank in range(round_.world_size)], _RESTORE_S)
        self._begin_copying(round_, choice, client)

    def environment(self) -> dict[str, str]:
        """Returns the variables for this round's processes."""
        return {
            snapshots.FOLDER: str(self._path),
            snapshots.ROUND: str(self._number),
            snapshots.LIMIT: str(self._limit_bytes),
        }

    def flush(self, timeout_s: float) -> None:
        """Waits up to `timeout_s` until the next agent has all parts that the processes have saved."""
        with self._changed:
            self._changed.wait_for(lambda: self._target is None or not self._next(), timeout_s)

    def close(self) -> None:
        """Stops the copies, and removes all snapshots."""
        self._closed.set()
        with self._changed:
            self._target = None
            self._changed.notify_all()
        self._server.close()
        self._thread.join(_PAUSE_S)
        self._folder.close()

    @property
    def _path(self) -> Path:
        return self._folder.path

    def _fetch(
        self, choice: holdings.SnapshotChoice, round_: Round, place: Place, client: PartClient
    ) -> None:
        first, count = place.first_rank, place.sizes[place.rank]
        parts = holdings.needed(choice, first, count, place.world_size)
        missing = [part for part in parts if part not in find_parts(self._path)]
        began_s = clock.monotonic_s()
        for part in missing:
            rank = choice.owners[part.rank]
            address = round_.members[rank].address
            client.fetch(address, rank, part, self._path, self._limit_bytes)
        seconds = clock.monotonic_s() - began_s
        log.info("continuing from the snapshot of step %d", choice.step)
        if missing:
            log.info("fetched %d of its parts from other pods in %.1f s", len(missing), seconds)

    def _tidy(self, choice: holdings.SnapshotChoice | None) -> None:
        """Removes parts that are not needed, and writes the list of parts to restore from."""
        found = find_parts(self._path)
        parts = () if choice is None else choice.parts
        for part, file in found.items():
            if part not in parts:
                remove(file)
        restore = self._path / snapshots.RESTORE
        if choice is None:
            restore.unlink(missing_ok=True)
            return
        restore.write_bytes(holdings.dump(parts))

    def _begin_copying(
        self, round_: Round, choice: holdings.SnapshotChoice | None, client: PartClient
    ) -> None:
        with self._changed:
            self._number, self._sent = round_.number, set()
            self._unsent = set()
            if choice is not None:
                owned = zip(choice.parts, choice.owners)
                self._unsent = {part for part, owner in owned if owner == round_.rank}
            if round_.world_size > 1:
                target = (round_.rank + 1) % round_.world_size
                self._target = client, round_.members[target].address, target

    def _next(self) -> SnapshotPart | None:
        """Returns the newest part that the next agent lacks, or None."""
        found = find_parts(self._path)
        lacking = [
            part
            for part, file in found.items()
            if part not in self._sent
            and (part in self._unsent or (part.round == self._number and file.name.startswith(OWN)))
        ]
        return max(lacking, key=lambda part: part.snapshot, default=None)

    def _copy(self) -> None:
        """Copies each new part to the next agent; runs in a thread."""
        failed_at = 0
        while not self._closed.wait(_LOOK_S):
            with self._changed:
                target, number = self._target, self._number
                part = None if target is None else self._next()
            if target is None or part is None:
                continue
            client, address, rank = target
            try:
                self._send(client, address, rank, part)
            except (EdlError, OSError) as error:
                if failed_at != number:
                    log.warning("could not copy a snapshot to another pod yet: %s", one_line(error))
                failed_at = number
                self._closed.wait(_PAUSE_S)

    def _send(self, client: PartClient, address: str, rank: int, part: SnapshotPart) -> None:
        with reading(self._path, part) as descriptor:
            if descriptor is None:
                return  # the process is already writing its next snapshot
            client.send(address, rank, part, descriptor)
        with self._changed:
            self._sent.add(part)
            self._changed.notify_all()


def stand_aside(round_: Round, store: RoundStore) -> None:
    """Tells the other agents that this one keeps no snapshots, so that all processes start without one.

    Raises:
        RoundOver: An agent is lost.
    """
    store.set(_held(round_.rank), holdings.NOTHING)
    store.set(_restored(round_.rank), b"1")


def _held(rank: int) -> str:
    return f"snapshots/{rank}"


def _restored(rank: int) -> str:
    return f"restored/{rank}"


def open_keeper(settings: Settings, limit_bytes: int) -> SnapshotKeeper | None:
    """Returns a keeper; None if there is no shared memory, or numpy is not installed.

    Raises:
        SettingError: Another agent with this name is running here, or the port is taken.
    """
    folder = open_folder(settings)
    if folder is None:
        return None
    try:
        return SnapshotKeeper(settings, limit_bytes, folder)
    except ImportError as error:
        log.info("snapshots are not kept (%s): pip install numpy", one_line(error))
        folder.close()
        return None
    except BaseException:
        folder.close()
        raise
