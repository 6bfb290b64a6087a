"""`edl agent --replica`: runs the processes of a pod that together hold one replica of a model.

If one of them fails, all are stopped and restarted. They keep running when members of the job change; the
first process joins rounds itself (`edl.torch.Training`).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence

from edl.agent.environment import Place, worker_environment
from edl.agent.workers import FAILED, STUCK, Workers, failed_too_often
from edl.local.ports import free_ports
from edl.master.sigterm import EXIT_CODE, SigtermWatcher

log = logging.getLogger("edl")

_POLL_S = 0.05
_FROZEN_POLLS = 40
"""Number of consecutive polls for which a process must be stopped (SIGSTOP) to count as lost. A process
that was stopped together with its agent continues a little later than the agent."""
_LOST_S = 0.0
"""Grace period for the other processes of a lost replica: none, because they cannot continue."""


class ReplicaAgent:
    """Runs the processes of a pod, and restarts all of them if one is lost."""

    def __init__(
        self, command: Sequence[str], processes: int, max_restarts: int, *, grace_s: float, job: str
    ) -> None:
        """Starts nothing yet.

        Args:
            command: The absolute path of the program, and its arguments.
            processes: Number of processes.
            max_restarts: How often to restart the processes.
            grace_s: How long the processes may take to end after SIGTERM.
            job: Name of the job, for `TORCHELASTIC_RUN_ID`.
        """
        self._command, self._processes, self._max_restarts = list(command), processes, max_restarts
        self._grace_s, self._job = grace_s, job
        self._stopping = threading.Event()

    def run(self) -> int:
        """Runs the processes until all have finished; returns the exit code."""
        watcher = SigtermWatcher(self._stopping.set)
        watcher.install()
        failure = ""
        try:
            for restarts in range(self._max_restarts + 1):
                failure = self._run_once(restarts)
                if self._stopping.is_set():
                    return EXIT_CODE
                if not failure:
                    return 0
                log.warning("%s; stopped all processes of this pod", failure)
        finally:
            watcher.remove()
        text = failed_too_often("this pod", self._max_restarts + 1, self._max_restarts, failure)
        log.error("%s", text)
        return FAILED

    def _run_once(self, restarts: int) -> str:
        """Runs the processes once; returns why they failed, or "" if they finished or must stop."""
        workers = Workers(self._command, self._environments(restarts))
        stopped_polls = 0
        try:
            while not self._stopping.is_set():
                workers.wait(_POLL_S)
                if workers.failure or workers.have_finished:
                    return workers.failure
                stopped_polls = stopped_polls + 1 if workers.stopped else 0
                if stopped_polls >= _FROZEN_POLLS:
                    return f"process {workers.stopped[0]} is stopped, as by SIGSTOP"
            return ""
        finally:
            if not workers.stop(self._grace_s if self._stopping.is_set() else _LOST_S):
                log.error(STUCK)

    def _environments(self, restarts: int) -> list[dict[str, str]]:
        place, address = Place(0, (self._processes,), 0), f"127.0.0.1:{free_ports(1)[0]}"
        environ = dict(os.environ)
        name = {"EDL_TRAINER": environ["EDL_TRAINER"]} if "EDL_TRAINER" in environ else {}
        return [
            {
                **worker_environment(
                    place,
                    local_rank,
                    address,
                    run_id=self._job or "edl",
                    restarts=restarts,
                    max_restarts=self._max_restarts,
                    environ=environ,
                ),
                **name,  # the pod is the trainer; its first process acts for it
            }
            for local_rank in range(self._processes)
        ]
