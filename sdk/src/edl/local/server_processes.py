"""Keeps the parameter servers of a run alive."""

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
    """Returns the name of a server: on the screen, in schedules and in the name of its log."""
    return f"server-{index}"


def command(index: int, ports: list[int], job: str, checkpoints: Path) -> list[str]:
    """Returns the command line of a server; its port stays the same after restarts."""
    flags = ("--index", str(index), "--of", str(len(ports)), "--job", job)
    return programs.command("pserver", ports[index], *flags, "--checkpoints", str(checkpoints))


class ServerProcesses:
    """The parameter server processes of a run, which are restarted with back-off when they die."""

    def __init__(self, start: Callable[[int], Process], count: int) -> None:
        self._servers = [
            RestartedProcess(partial(start, index), name_of(index), _MAX_DEATHS)
            for index in range(count)
        ]

    @property
    def all(self) -> list[Process]:
        """The current process of each server, ordered by index."""
        return [server.process for server in self._servers]

    @property
    def deaths(self) -> int:
        """How often servers have died, in total."""
        return sum(server.deaths for server in self._servers)

    def restart_dead(self) -> None:
        """Restarts dead servers after their back-off.

        Raises:
            EdlError: A server dies repeatedly.
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
        """Sends SIGTERM, on which servers write a final checkpoint, and SIGKILL after the grace period."""
        stop_all(self.all, grace_s)
