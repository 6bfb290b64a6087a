"""`edl agent --members`: each process of a pod is a trainer and takes part in rounds itself.

A process that fails is restarted alone; the others continue in the next round.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence

from edl.agent.environment import member_environment
from edl.agent.workers import FAILED, STUCK, Workers, failed_too_often
from edl.master.settings import Settings
from edl.master.sigterm import EXIT_CODE, SigtermWatcher

log = logging.getLogger("edl")

_POLL_S = 0.05


class MembersAgent:
    """Starts the processes of one pod, and restarts each process that fails."""

    def __init__(
        self, command: Sequence[str], processes: int, max_restarts: int, settings: Settings
    ) -> None:
        """Starts nothing yet.

        Args:
            command: The absolute path of the program, and its arguments.
            processes: Number of processes.
            max_restarts: Limit for restarts, counted over all processes.
            settings: The pod's settings.
        """
        self._command, self._processes, self._max_restarts = list(command), processes, max_restarts
        self._settings = settings
        self._stopping = threading.Event()

    def run(self) -> int:
        """Runs the processes until all have finished; returns the exit code."""
        watcher = SigtermWatcher(self._stopping.set)
        watcher.install()
        try:
            return self._run_processes()
        finally:
            watcher.remove()

    def _run_processes(self) -> int:
        environments = [
            member_environment(local_rank, self._processes, os.environ)
            for local_rank in range(self._processes)
        ]
        workers = Workers(self._command, environments)
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
