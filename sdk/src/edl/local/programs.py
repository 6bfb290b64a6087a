"""Programs of the control plane as processes of a run: their command lines, and restarts when they die."""

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
"""A process that lives longer has started well."""


def require(module: str, need: str) -> None:
    """Checks that a program is installed; `need` begins the message.

    Raises:
        SettingError: It is not.
    """
    if importlib.util.find_spec(module) is None:
        raise SettingError(
            f"{need} not installed here: install edl-control-plane into the environment of "
            f"{sys.executable}"
        )


def command(module: str, port: int, *flags: str) -> list[str]:
    """Returns the command line of a program that listens at a port."""
    # -P: otherwise a file of the module's name in the working directory would be imported
    program = [sys.executable, "-P", "-m", module, "--listen", f"127.0.0.1:{port}", *flags]
    return [*program, "--log-format", "text"]  # between the lines of trainers


class RestartedProcess:
    """A process that is restarted with back-off when it dies."""

    def __init__(self, start: Callable[[], Process], name: str, max_deaths: int) -> None:
        """Starts it; `max_deaths` are those in a row, each soon after a start."""
        self._start, self._name, self._max_deaths = start, name, max_deaths
        self._backoff = Backoff()
        self._started_s = clock.monotonic_s()
        self._restart_at_s: float | None = None
        self.deaths = 0
        self.process = start()

    def is_running(self, *, refuses: bool = False) -> bool:
        """Whether it is running; restarts one that is not, after its back-off.

        Args:
            refuses: Whether an error at its end is one of its start, as it has never served.

        Raises:
            EdlError: It dies repeatedly, or refuses to start.
        """
        if self.process.running:
            return True
        now_s = clock.monotonic_s()
        if self._restart_at_s is None:
            self.deaths += 1
            if now_s - self._started_s > _STABLE_S:
                self._backoff.reset()
            self._restart_at_s = now_s + self._backoff.next_s()
            self.process.wait(1)  # its last line
            has_refused = refuses and (self.process.code or 0) > 0
            if has_refused or self._backoff.tries > self._max_deaths:
                output = self.process.last_line or "no output"
                raise EdlError(f"{self._name} dies repeatedly: {output}")
            log.warning("%s ended (%s): restarting it", self._name, self.process.code)
        elif now_s >= self._restart_at_s:
            self._restart_at_s, self._started_s = None, now_s
            self.process = self._start()
        return False
