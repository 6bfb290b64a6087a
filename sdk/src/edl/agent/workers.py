"""The processes of one agent in one round."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

from edl import clock
from edl.agent.worker_process import WorkerProcess

log = logging.getLogger("edl")

FAILED = 1
"""Exit code of an agent that gives up, so that its pod is replaced."""
STUCK = "a process has not ended after SIGKILL, because its device does not answer"
"""Log message if `Workers.stop` returns False."""
_KILLED_S = 5.0
"""How long a killed process may take to end."""
WEDGED_S = 10.0
"""How long a process may live after it has reported a device fault."""


class Workers:
    """A group of processes that are started and stopped together, including their children.

    Failed processes can be restarted separately.
    """

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        wedged_s: float = WEDGED_S,
    ) -> None:
        """Starts one process for each environment.

        Args:
            command: The absolute path of the program, and its arguments.
            environments: Environments of the processes, in order of local rank.
            wedged_s: How long a process may live after it has reported a device fault.
        """
        self._command, self._environments = list(command), list(environments)
        self._wedged_s = wedged_s
        self._changed = threading.Event()
        self._workers: list[WorkerProcess] = []
        try:
            for environment in self._environments:
                self._workers.append(self._start(environment))
        except BaseException:
            self.stop(0.0)
            raise

    def wait(self, timeout_s: float) -> None:
        """Waits up to `timeout_s` until a process ends."""
        if self._changed.wait(timeout_s):
            self._changed.clear()

    @property
    def failure(self) -> str:
        """A description of the process that failed; "" if none has."""
        for rank, worker in enumerate(self._workers):
            failure = worker.failure(self._wedged_s)
            if failure:
                return f"process {rank} {failure}"
        return ""

    @property
    def have_finished(self) -> bool:
        """Whether all processes have ended without an error."""
        return all(worker.process.poll() == 0 for worker in self._workers)

    @property
    def stopped(self) -> list[int]:
        """The local ranks of processes that are stopped, for example by SIGSTOP."""
        return [rank for rank, worker in enumerate(self._workers) if worker.is_stopped]

    def replace_failed(self) -> bool:
        """Kills the children of each failed process and restarts it; other processes continue.

        Returns:
            False if a process has not ended after SIGKILL; it is not restarted.
        """
        for rank, worker in enumerate(self._workers):
            if not worker.failure(self._wedged_s):
                continue
            worker.signal(signal.SIGKILL)
            try:
                worker.process.wait(_KILLED_S)
            except subprocess.TimeoutExpired:
                return False
            self._workers[rank] = self._start(self._environments[rank])
        return True

    def stop(self, grace_s: float) -> bool:
        """Stops all processes: with SIGTERM, and after `grace_s` with SIGKILL.

        Returns:
            Whether all have ended; False if the kernel is waiting for a device that does not answer.
        """
        self._signal(signal.SIGTERM)
        until_s = clock.monotonic_s() + grace_s
        while self._are_alive and clock.monotonic_s() < until_s:
            self.wait(max(0.0, until_s - clock.monotonic_s()))
        self._signal(signal.SIGKILL)
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(_KILLED_S)
        return not self._are_alive

    @property
    def _are_alive(self) -> bool:
        return any(worker.process.poll() is None for worker in self._workers)

    def _start(self, environment: Mapping[str, str]) -> WorkerProcess:
        return WorkerProcess(self._command, environment, self._changed.set)

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            worker.signal(number)


def failed_too_often(whose: str, failures: int, max_restarts: int, failure: str) -> str:
    """Returns the message for an agent that gives up.

    Args:
        whose: Owner of the processes: a trainer's name, or "this pod".
        failures: Number of failures.
        max_restarts: Limit for restarts.
        failure: Description of the last failure.
    """
    return (
        f"processes of {whose} have failed {failures} times (--max-restarts {max_restarts}); "
        f"last failure: {failure}"
    )
