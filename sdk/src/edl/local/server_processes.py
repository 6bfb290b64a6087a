"""Starts the parameter servers of a run, and restarts them when they die."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from edl.local import programs
from edl.local.processes import Process, stop_all
from edl.local.programs import RestartedProcess

log = logging.getLogger("edl.run")

_MAX_DEATHS = 5


def name_of(index: int) -> str:
    """Returns the name of a server on the screen, in schedules and of its log."""
    return f"server-{index}"


def command(index: int, ports: list[int], job: str, checkpoints: Path) -> list[str]:
    """Returns the command line of a server; its address is the same at each start."""
    flags = ("--index", str(index), "--of", str(len(ports)), "--job", job)
    return programs.command("pserver", ports[index], *flags, "--checkpoints", str(checkpoints))


class ServerProcesses:
    """The parameter server processes of a run; dead ones are restarted with back-off."""

    def __init__(self, start: Callable[[int], Process], count: int) -> None:
        self._servers = [
            RestartedProcess(partial(start, index), name_of(index), _MAX_DEATHS)
            for index in range(count)
        ]

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
        for server in self._servers:
            server.is_running()

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
