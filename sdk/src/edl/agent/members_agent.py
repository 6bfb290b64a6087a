"""`edl agent --members`: each process of a pod takes part in rounds itself, in the same process.

Where one has failed, it alone is started again; the others go on in the next round. The coordination
services of JAX are the agent's, so that none ends with a process.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence

from edl.agent.environment import member_environment
from edl.agent.workers import FAILED, STUCK, Workers, failed_too_often
from edl.jax.agent_services import VARIABLE, ServicesSocket
from edl.jax.services import CoordinationServices
from edl.master.settings import Settings
from edl.master.sigterm import EXIT_CODE, SigtermWatcher

log = logging.getLogger("edl")

_POLL_S = 0.05


class MembersAgent:
    """Starts the processes of one pod, and starts each again where it is lost."""

    def __init__(
        self, command: Sequence[str], processes: int, max_restarts: int, settings: Settings
    ) -> None:
        """Starts nothing yet.

        Args:
            command: An absolute path, and arguments.
            processes: How many to start.
            max_restarts: How often processes are started again, all together.
            settings: The pod's.
        """
        self._command, self._processes, self._max_restarts = list(command), processes, max_restarts
        self._settings = settings
        self._stopping = threading.Event()

    def run(self) -> int:
        """Runs the processes until all have finished; returns the exit code."""
        watcher = SigtermWatcher(self._stopping.set)
        watcher.install()
        sockets = self._open_socket()
        try:
            return self._run_processes(sockets.path if sockets else "")
        finally:
            if sockets:
                sockets.close()
            watcher.remove()

    def _open_socket(self) -> ServicesSocket | None:
        try:
            return ServicesSocket(CoordinationServices(self._settings.address))
        except OSError as error:
            log.warning("coordination services of JAX will be those of its processes: %s", error)
            return None

    def _run_processes(self, path: str) -> int:
        workers = Workers(self._command, self._environments(path))
        restarts = 0
        try:
            while not self._stopping.is_set():
                workers.wait(_POLL_S)
                if workers.have_finished:
                    return 0
                failure = workers.failure
                if not failure:
                    continue
                if restarts == self._max_restarts:
                    log.error("%s", failed_too_often("this pod", restarts + 1, restarts, failure))
                    return FAILED
                restarts += 1
                log.warning("%s; it is started again", failure)
                if not workers.replace_failed():
                    return FAILED  # its pod is replaced
            return EXIT_CODE
        finally:
            if not workers.stop(self._settings.grace_s):
                log.error(STUCK)

    def _environments(self, path: str) -> list[dict[str, str]]:
        environ = {**os.environ, **({VARIABLE: path} if path else {})}
        return [
            member_environment(local_rank, self._processes, environ)
            for local_rank in range(self._processes)
        ]
