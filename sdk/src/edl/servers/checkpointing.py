"""Two-phase checkpoints of all servers, run by the trainer that server 0 selects."""

from __future__ import annotations

import logging
import threading
from typing import Callable

from edl.master.protocol import Json
from edl.servers.connection import PserverConnection
from edl.servers.data_rewinder import DataRewinder
from edl.servers.errors import RequestRefused, ServersError
from edl.servers.fan_out import FanOut
from edl_protocol.pserver import Commit, PositionCall, Prepare

log = logging.getLogger("edl")
WRITE_S = 110.0
"""Time limit for a server to write its part; server 0's ticket expires soon after it."""
_MOMENT_S = 1.0


def write_checkpoint(
    fan: FanOut, identity: Json, version: int, data: DataRewinder | None = None
) -> None:
    """Makes all servers write their parts and then commit them, server 0 last.

    Args:
        fan: Calls all servers.
        identity: Trainer, incarnation and generation.
        version: Version of the checkpoint.
        data: Provides the position in the data for server 0 to store; None keeps the last position.

    Raises:
        ServersError: The checkpoint was not written; older checkpoints are intact.
    """
    body = {**identity, "version": version}
    position = {} if data is None else _position(fan, identity, data)

    def prepare(connection: PserverConnection, server: int) -> Json:
        request = body if server else {**body, **position}
        return connection.json("POST", Prepare.PATH, request, WRITE_S)

    def commit(connection: PserverConnection, _: int) -> Json:
        return connection.json("POST", Commit.PATH, body)

    fan.call_all(prepare)
    fan.call_coordinator_last(commit)


def _position(fan: FanOut, identity: Json, data: DataRewinder) -> Json:
    """Asks the master for the ledger's position and for the pushed tasks that it has recorded as done.

    This happens before the parts are written, so the parts contain at least that position. Without an
    answer, server 0 lists the tasks since its last position.
    """
    try:
        (listed,) = fan.call_all(
            lambda connection, _: connection.json("POST", PositionCall.PATH, identity), [0]
        )
    except RequestRefused:  # the server is of an older version, or serves another generation
        return {}
    answer = data.position(list(listed["remaining"]))
    if answer is None:
        return {}
    return {"ledger": answer["position"], "settled": answer["settled"]}


class ServerCheckpointer:
    """Writes checkpoints in a thread, one at a time, over separate connections."""

    def __init__(self, connect: Callable[[], FanOut], data: DataRewinder | None = None) -> None:
        self._connect, self._data = connect, data
        self._thread: threading.Thread | None = None
        self._fan: FanOut | None = None

    def start(self, identity: Json, version: int) -> bool:
        """Starts a checkpoint.

        Returns:
            False if an earlier checkpoint is still being written; another trainer may write this one.
        """
        if self._thread is not None:
            self._thread.join(
                _MOMENT_S
            )  # soon ends: server 0 asks for the next checkpoint only after the commit
            if self._thread.is_alive():
                return False
        self._thread = threading.Thread(
            target=self._run, args=(identity, version), name="edl-saver", daemon=True
        )
        self._thread.start()
        return True

    def finish(self, timeout_s: float) -> None:
        """Waits for the running checkpoint; aborts its calls after the timeout."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        if self._fan is not None:
            self._fan.close()
            self._fan = None

    def _run(self, identity: Json, version: int) -> None:
        if self._fan is None:
            self._fan = self._connect()
        try:
            write_checkpoint(self._fan, identity, version, self._data)
        except ServersError as error:
            log.warning("could not save a checkpoint of version %d: %s", version, error)
        else:
            log.info("parameter servers saved version %d", version)
