"""Keeps the master of a run alive and polls its status."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from edl import clock
from edl.errors import MasterError
from edl.local import programs
from edl.local.processes import Process
from edl.local.programs import RestartedProcess
from edl.master.connection import Connection
from edl_protocol.master import STATUS_PATH

log = logging.getLogger("edl.run")

NAME = "master"
_STATUS_S = 0.5
_HEARTBEAT_S = 1
"""The master declares a trainer dead after three missed heartbeats; 3 s are enough on one machine."""
_FINAL_STATUS_S, _CHECK_S = 15.0, 0.05
_MAX_DEATHS = 3


def command(journal: str, port: int) -> list[str]:
    """Returns the command line of the master."""
    flags = ("--journal", journal, "--heartbeat-seconds", str(_HEARTBEAT_S))
    return programs.command("master", port, *flags)


class MasterSupervisor(RestartedProcess):
    """Keeps a master running, and holds its latest status."""

    def __init__(self, start: Callable[[], Process], url: str, token: str) -> None:
        super().__init__(start, "the master", _MAX_DEATHS)
        self._connection = Connection(url, token)
        self._polled_s = 0.0
        self.status: Mapping[str, Any] = {}
        self.serving = False

    def check(self) -> None:
        """Restarts a dead master, or polls the status of a running one at intervals.

        Raises:
            EdlError: The master dies repeatedly, or does not start.
        """
        if not self.is_running(refuses=not self.status):
            self.serving = False
        elif clock.monotonic_s() - self._polled_s >= _STATUS_S:
            self.poll_status()

    def poll_status(self) -> None:
        """Requests the status; keeps the previous one if the master does not answer."""
        self._polled_s = clock.monotonic_s()
        try:
            self.status = self._connection.call("GET", STATUS_PATH, answer_s=2.0)
        except MasterError as error:
            if self.serving:
                log.info("%s", error)
            self.serving = False
        else:
            self.serving = True

    def final_status(self) -> bool:
        """Requests the status until the master answers, restarting it if necessary.

        Returns:
            False if the master did not answer in time; the status is then out of date.

        Raises:
            EdlError: The master dies repeatedly.
        """
        until_s = clock.monotonic_s() + _FINAL_STATUS_S
        while clock.monotonic_s() < until_s:
            self._polled_s = -_STATUS_S
            self.check()
            if self.process.running and self.serving:
                return True
            threading.Event().wait(_CHECK_S)
        return False

    def close(self) -> None:
        """Closes the connection to the master."""
        self._connection.close()
