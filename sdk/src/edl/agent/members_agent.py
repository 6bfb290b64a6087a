"""`edl agent --members`: runs the processes of a pod, each of which joins rounds itself and outlives them.

Only a process that fails is restarted; the others continue in the next round. The agent hosts JAX's
coordination services, so that they do not end with a process.
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
    """Runs the processes of a pod, and restarts each one that fails."""

    def __init__(
        self, command: Sequence[str], processes: int, max_restarts: int, settings: Settings
    ) -> None:
        """Starts nothing yet.

        Args:
            command: The absolute path of the program, and its arguments.
            processes: Number of processes.
            max_restarts: Total number of restarts.
            settings: The settings of the pod.
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
            log.warning(
                "cannot host JAX's coordination services, so processes start their own: %s", error
            )
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
                log.warning("%s; restarting it", failure)
                if not workers.replace_failed():
                    return FAILED  # so that the pod is replaced
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
