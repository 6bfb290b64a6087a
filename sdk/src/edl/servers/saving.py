"""Checkpoints of all servers, in two phases, by the trainer that server 0 has chosen."""

from __future__ import annotations

import logging
import threading
from typing import Any, Callable

from edl.servers.errors import ServersError
from edl.servers.fan import Fan
from edl.servers.link import Link

log = logging.getLogger("edl")

Json = dict[str, Any]
WRITE_S = 110.0
"""For a server to write its part; server 0's ticket runs out soon after."""
_MOMENT_S = 1.0


def save(fan: Fan, told: Json, version: int) -> None:
    """Has all servers write their parts, and only then calls them a checkpoint; server 0 last.

    Args:
        fan: To all servers.
        told: Trainer, incarnation and generation.
        version: The checkpoint's name.

    Raises:
        ServersError: It did not come about; older ones are whole.
    """
    body = {**told, "version": version}

    def prepare(link: Link, _: int) -> Json:
        return link.json("POST", "/v1/prepare", body, WRITE_S)

    def commit(link: Link, _: int) -> Json:
        return link.json("POST", "/v1/commit", body)

    fan.each(prepare)
    others = list(range(1, len(fan)))
    if others:
        fan.each(commit, others)
    fan.each(commit, [0])


class Saver:
    """Saves in a thread, one checkpoint at a time, over connections of its own."""

    def __init__(self, connect: Callable[[], Fan]) -> None:
        self._connect = connect
        self._thread: threading.Thread | None = None
        self._fan: Fan | None = None

    def start(self, told: Json, version: int) -> bool:
        """Begins.

        Returns:
            False where another one is still being written: another trainer may do it.
        """
        if self._thread is not None:
            self._thread.join(_MOMENT_S)  # its checkpoint is whole, or server 0 would not ask
            if self._thread.is_alive():
                return False
        self._thread = threading.Thread(
            target=self._run, args=(told, version), name="edl-saver", daemon=True
        )
        self._thread.start()
        return True

    def finish(self, timeout_s: float) -> None:
        """Waits for the one being written; gives it up after a while, and its calls end at once."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        if self._fan is not None:
            self._fan.close()
            self._fan = None

    def _run(self, told: Json, version: int) -> None:
        if self._fan is None:
            self._fan = self._connect()
        try:
            save(self._fan, told, version)
        except ServersError as error:
            log.warning("no checkpoint at version %d: %s", version, error)
        else:
            log.info("parameter servers saved version %d", version)
