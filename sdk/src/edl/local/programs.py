"""Runs programs of the control plane as processes of a run, and restarts them when they die."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable

from edl import clock
from edl.backoff import Backoff
from edl.errors import EdlError, SettingError
from edl.local.processes import Process

log = logging.getLogger("edl.run")

_STABLE_S = 5.0
"""A process that lives longer than this has started successfully."""


def require(module: str, need: str) -> None:
    """Checks that a program of the control plane is installed.

    Args:
        module: The program's module.
        need: The start of the error message, such as "edl run needs the master, which is".

    Raises:
        SettingError: The program is not installed.
    """
    if importlib.util.find_spec(module) is None:
        raise SettingError(
            f"{need} not installed here: install edl-control-plane into the environment of "
            f"{sys.executable}"
        )


def command(module: str, port: int, *flags: str) -> list[str]:
    """Returns the command line of a program that listens on a port."""
    # -P: do not import a file with the module's name from the working directory
    program = [sys.executable, "-P", "-m", module, "--listen", f"127.0.0.1:{port}", *flags]
    return [*program, "--log-format", "text"]  # its lines appear among the trainers' lines


class RestartedProcess:
    """A process that is restarted with back-off when it dies."""

    def __init__(self, start: Callable[[], Process], name: str, max_deaths: int) -> None:
        """Starts the process.

        Args:
            start: Starts the process.
            name: Name for messages.
            max_deaths: How often in a row the process may die soon after a start.
        """
        self._start, self._name, self._max_deaths = start, name, max_deaths
        self._backoff = Backoff()
        self._started_s = clock.monotonic_s()
        self._restart_at_s: float | None = None
        self.deaths = 0
        self.process = start()

    def is_running(self, *, refuses: bool = False) -> bool:
        """Returns whether the process is running; restarts a dead one after its back-off.

        Args:
            refuses: Whether the process has never served; an exit with an error then means that it
                cannot start.

        Raises:
            EdlError: The process dies repeatedly, or cannot start.
        """
        if self.process.running:
            return True
        now_s = clock.monotonic_s()
        if self._restart_at_s is None:
            self.deaths += 1
            if now_s - self._started_s > _STABLE_S:
                self._backoff.reset()
            self._restart_at_s = now_s + self._backoff.next_s()
            self.process.wait(1)  # for its last line
            has_refused = refuses and (self.process.code or 0) > 0
            if has_refused or self._backoff.tries > self._max_deaths:
                output = self.process.last_line or "no output"
                raise EdlError(f"{self._name} dies repeatedly: {output}")
            log.warning("%s exited with code %s: restarting it", self._name, self.process.code)
        elif now_s >= self._restart_at_s:
            self._restart_at_s, self._started_s = None, now_s
            self.process = self._start()
        return False
