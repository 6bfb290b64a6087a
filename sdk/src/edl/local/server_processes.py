"""Starts the parameter servers of a run, and restarts them when they die."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edl import clock
from edl.backoff import Backoff
from edl.errors import EdlError, SettingError
from edl.local.processes import Process, stop_all

log = logging.getLogger("edl.run")

_STABLE_S = 5.0
_MAX_DEATHS = 5
"""Consecutive deaths, each soon after a start."""


def require() -> None:
    """Checks that the parameter server is installed.

    Raises:
        SettingError: It is not.
    """
    if importlib.util.find_spec("pserver") is None:
        raise SettingError(
            "--async needs parameter servers, which are not installed here: install "
            f"edl-control-plane into the environment of {sys.executable}"
        )


def name_of(index: int) -> str:
    """Returns the name of a server on the screen, in schedules and of its log."""
    return f"server-{index}"


def command(index: int, ports: list[int], job: str, checkpoints: Path) -> list[str]:
    """Returns the command line of a server; its address is the same at each start."""
    # -P: otherwise a file `pserver.py` in the working directory would be imported
    program = [sys.executable, "-P", "-m", "pserver", "--listen", f"127.0.0.1:{ports[index]}"]
    program += ["--index", str(index), "--of", str(len(ports)), "--job", job]
    return [*program, "--checkpoints", str(checkpoints), "--log-format", "text"]


@dataclass
class _Server:
    process: Process
    started_s: float
    backoff: Backoff
    restart_at_s: float | None = None
    deaths: int = 0


class ServerProcesses:
    """The parameter server processes of a run; dead ones are restarted with back-off."""

    def __init__(self, start: Callable[[int], Process], count: int) -> None:
        self._start = start
        now_s = clock.monotonic_s()
        self._servers = [_Server(start(index), now_s, Backoff()) for index in range(count)]

    @property
    def all(self) -> list[Process]:
        """The current process of each server, in order of their index."""
        return [server.process for server in self._servers]

    @property
    def deaths(self) -> int:
        """Total number of deaths."""
        return sum(server.deaths for server in self._servers)

    def restart_dead(self) -> None:
        """Restarts servers that ended, after their back-off.

        Raises:
            EdlError: One dies repeatedly.
        """
        now_s = clock.monotonic_s()
        for index, server in enumerate(self._servers):
            if not server.process.running:
                self._restart(index, server, now_s)

    def kill(self, name: str) -> bool:
        """Sends SIGKILL to the server of this name; returns False if there is none."""
        matching = [server.process for server in self._servers if server.process.name == name]
        for process in matching:
            log.info("sending SIGKILL to %s", process.name)
            process.kill()
        return bool(matching)

    def stop(self, grace_s: float) -> None:
        """Sends SIGTERM, on which servers write a final checkpoint, then SIGKILL after the grace."""
        stop_all(self.all, grace_s)

    def _restart(self, index: int, server: _Server, now_s: float) -> None:
        if server.restart_at_s is None:
            server.deaths += 1
            if now_s - server.started_s > _STABLE_S:
                server.backoff.reset()
            server.restart_at_s = now_s + server.backoff.next_s()
            server.process.wait(1)  # its last line
            if server.backoff.tries > _MAX_DEATHS:
                output = server.process.last_line or "no output"
                raise EdlError(f"{server.process.name} dies repeatedly: {output}")
            log.warning("%s ended (%s): restarting it", server.process.name, server.process.code)
        elif now_s >= server.restart_at_s:
            server.restart_at_s, server.started_s = None, now_s
            server.process = self._start(index)
