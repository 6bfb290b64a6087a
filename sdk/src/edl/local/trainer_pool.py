"""Starts, removes and kills the trainers of a run, and replaces a limited number of failed ones."""

from __future__ import annotations

import logging
from collections.abc import Callable

from edl import clock
from edl.local.processes import Process
from edl.master.sigterm import EXIT_CODE

log = logging.getLogger("edl.run")

MAX_FAILURES = 3
_GRACE_S = 30.0
"""Time between SIGTERM and SIGKILL, the same as on a cluster."""


class TrainerPool:
    """The trainer processes of a run; names are never reused."""

    def __init__(self, start: Callable[[str], Process], fatal_code: int | None = None) -> None:
        """Creates an empty pool.

        Args:
            start: Starts a trainer of the given name.
            fatal_code: Trainers with this exit code are not replaced, because a replacement would
                fail, too.
        """
        self._start = start
        self._fatal_code = fatal_code
        self._next = 0
        self._handled: set[str] = set()
        self.all: list[Process] = []
        self.failed: list[Process] = []
        """Trainers that failed by themselves, that is, were not removed or killed."""
        self.ended_fatally = False
        """Whether a trainer ended with the fatal code."""

    @property
    def running(self) -> list[Process]:
        """Running trainers, oldest first."""
        return [process for process in self.all if process.running]

    @property
    def failures(self) -> int:
        """Number of trainers that failed by themselves."""
        return len(self.failed)

    @property
    def finished(self) -> bool:
        """Whether a trainer ended successfully; removed trainers never count, even with exit code 0."""
        return any(process.code == 0 and not process.stopped_by for process in self.all)

    def add(self, count: int) -> None:
        """Starts trainers."""
        for _ in range(count):
            self.all.append(self._start(f"trainer-{self._next}"))
            self._next += 1

    def remove(self, count: int) -> None:
        """Sends SIGTERM to the newest trainers."""
        for process in self._not_stopping()[-count:]:
            log.info("sending SIGTERM to %s", process.name)
            process.remove()

    def kill(self, name: str | None) -> None:
        """Sends SIGKILL to the trainer of this name, or to the newest."""
        matching = [process for process in self._not_stopping() if name in (None, process.name)]
        if not matching:
            log.warning(
                "nothing to kill: %s", f"{name} is not running" if name else "no trainer runs"
            )
        for victim in matching[-1:]:
            log.info("sending SIGKILL to %s", victim.name)
            victim.kill()

    def replace_failed(self, is_needed: Callable[[], bool] = lambda: True) -> None:
        """Replaces failed trainers, up to `MAX_FAILURES` in the run.

        Args:
            is_needed: Returns whether the job still needs trainers; called after a trainer failed.
        """
        for process in list(self.all):
            if process.running:
                self._kill_overdue(process)
                continue
            if process.name in self._handled:
                continue
            self._handled.add(process.name)
            if process.stopped_by or process.code in (0, EXIT_CODE):
                log.info("%s ended: %s", process.name, state_text(process))
                continue
            self.failed.append(process)
            log.warning(
                "%s %s; its last line: %s",
                process.name,
                state_text(process),
                process.last_words,
            )
            if process.code == self._fatal_code:
                self.ended_fatally = True
            elif self.failures <= MAX_FAILURES and is_needed():
                self.add(1)

    def _kill_overdue(self, process: Process) -> None:
        """Kills a process that still runs after its grace period."""
        if (
            process.stopped_by == "removed"
            and clock.monotonic_s() - process.stopped_at_s > _GRACE_S
        ):
            log.warning("%s did not end within %g s: sending SIGKILL", process.name, _GRACE_S)
            process.kill()

    def _not_stopping(self) -> list[Process]:
        return [process for process in self.running if not process.stopped_by]


def state_text(process: Process, busy: str = "training") -> str:
    """Describes the state of a process, such as `training` or `failed with exit code 1`.

    Args:
        process: The process.
        busy: The text for a running process.
    """
    code = process.code
    if code is None:
        return "leaving" if process.stopped_by else busy
    if code == 0:
        return "done"
    if process.stopped_by == "killed" and code < 0:
        return "killed (-9)"
    if code == EXIT_CODE:
        return "left (143)"
    return f"failed by signal {-code}" if code < 0 else f"failed with exit code {code}"
