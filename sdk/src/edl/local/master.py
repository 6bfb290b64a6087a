"""Starts the master of a run, polls its status, and restarts it when it dies."""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from edl import clock
from edl.backoff import Backoff
from edl.errors import EdlError, MasterError, SettingError
from edl.local.processes import Process
from edl.master.connection import Connection

log = logging.getLogger("edl.run")

NAME = "master"
_STATUS_S = 0.5
_HEARTBEAT_S = 1
"""On one machine, a trainer that misses three heartbeats is dead."""
_FINAL_STATUS_S, _CHECK_S = 15.0, 0.05
_STABLE_S = 5.0
_MAX_DEATHS = 3
"""Consecutive deaths, each soon after a start."""


def require() -> None:
    """Checks that the master is installed.

    Raises:
        SettingError: It is not.
    """
    if importlib.util.find_spec("master") is None:
        raise SettingError(
            "edl run needs the master, which is not installed here: install edl-control-plane into "
            f"the environment of {sys.executable}"
        )


def command(journal: str, port: int) -> list[str]:
    """Returns the command line of the master."""
    # -P: otherwise a file `master.py` in the working directory would be imported
    program = [sys.executable, "-P", "-m", "master", "--listen", f"127.0.0.1:{port}"]
    program += ["--journal", journal, "--heartbeat-seconds", str(_HEARTBEAT_S)]
    return [*program, "--log-format", "text"]  # between the lines of trainers


class MasterSupervisor:
    """Keeps a master running, and stores its latest status."""

    def __init__(self, start: Callable[[], Process], url: str, token: str) -> None:
        self._start = start
        self._connection = Connection(url, token)
        self._backoff = Backoff()
        self._started_s = clock.monotonic_s()
        self._restart_at_s: float | None = None
        self._polled_s = 0.0
        self.deaths = 0
        self.status: Mapping[str, Any] = {}
        self.serving = False
        self.process = start()

    def check(self) -> None:
        """Restarts a dead master, or polls the status of a running one at intervals.

        Raises:
            EdlError: It dies repeatedly, or does not start.
        """
        now_s = clock.monotonic_s()
        if not self.process.running:
            self._restart(now_s)
        elif now_s - self._polled_s >= _STATUS_S:
            self.poll_status()

    def poll_status(self) -> None:
        """Requests the status; keeps the previous one if the master does not answer."""
        self._polled_s = clock.monotonic_s()
        try:
            self.status = self._connection.call("GET", "/v1/status", answer_s=2.0)
        except MasterError as error:
            if self.serving:
                log.info("%s", error)
            self.serving = False
        else:
            self.serving = True

    def final_status(self) -> bool:
        """Requests the status until the master answers, restarting it if necessary.

        Returns:
            False if it did not answer in time; then the status is an old one.

        Raises:
            EdlError: It dies repeatedly.
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

    def _restart(self, now_s: float) -> None:
        if self._restart_at_s is None:
            self.serving = False
            self.deaths += 1
            if now_s - self._started_s > _STABLE_S:
                self._backoff.reset()
            self._restart_at_s = now_s + self._backoff.next_s()
            self.process.wait(1)  # its last line
            refuses = not self.status and (self.process.code or 0) > 0
            if refuses or self._backoff.tries > _MAX_DEATHS:
                raise EdlError(
                    f"the master dies repeatedly: {self.process.last_line or 'no output'}"
                )
            log.warning("the master ended (%s): restarting it", self.process.code)
        elif now_s >= self._restart_at_s:
            self._restart_at_s, self._started_s = None, now_s
            self.process = self._start()
