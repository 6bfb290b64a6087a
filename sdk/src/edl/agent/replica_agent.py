"""`edl agent --replica`: the processes of a pod that hold one replica of a model together.

They live and die together: where one has failed, all are ended and started again. Members of the job
change without them; the first process takes part in rounds itself (`edl.torch.Training`).
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
"""For so many polls in a row a process must be stopped, as by SIGSTOP, to count as lost: one that was
stopped with its agent goes on a little later."""
_LOST_S = 0.0
"""What is left of a replica cannot go on: it is not asked to end."""


class ReplicaAgent:
    """Starts the processes of one pod, and starts all again where one is lost."""

    def __init__(
        self, command: Sequence[str], processes: int, max_restarts: int, *, grace_s: float, job: str
    ) -> None:
        """Starts nothing yet.

        Args:
            command: An absolute path, and arguments.
            processes: How many to start.
            max_restarts: How often they are started again.
            grace_s: How long they may take to end after SIGTERM.
            job: Its name, for `TORCHELASTIC_RUN_ID`.
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
                log.warning("%s: all processes of this pod are ended", failure)
        finally:
            watcher.remove()
        text = failed_too_often("this pod", self._max_restarts + 1, self._max_restarts, failure)
        log.error("%s", text)
        return FAILED

    def _run_once(self, restarts: int) -> str:
        """Runs them once; returns why they cannot go on, "" if they have finished or must stop."""
        workers = Workers(self._command, self._environments(restarts))
        stopped_polls = 0
        try:
            while not self._stopping.is_set():
                workers.wait(_POLL_S)
                if workers.failure or workers.have_finished:
                    return workers.failure
                stopped_polls = stopped_polls + 1 if workers.stopped else 0
                if stopped_polls >= _FROZEN_POLLS:
                    return f"process {workers.stopped[0]} does not run any more, as after SIGSTOP"
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
                **name,  # the pod is the trainer, and its first process acts for it
            }
            for local_rank in range(self._processes)
        ]
