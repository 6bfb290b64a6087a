"""The trainers of a run: started, removed, killed; those that fail are replaced, a few times."""

from __future__ import annotations

import logging
from collections.abc import Callable

from edl import clock
from edl.local.processes import Process
from edl.stopping import EXIT_CODE

log = logging.getLogger("edl.run")

MOST_FAILURES = 3
_GRACE_S = 30.0
"""From SIGTERM to SIGKILL, as on a cluster."""


class Crew:
    """Ids only grow: a name that once was somebody's is never given again."""

    def __init__(self, start: Callable[[str], Process], hopeless_code: int | None = None) -> None:
        """Begins with nobody.

        Args:
            start: Starts a trainer of a name.
            hopeless_code: Exit code of those that must not be replaced: another would end alike.
        """
        self._start = start
        self._hopeless_code = hopeless_code
        self._next = 0
        self._seen: set[str] = set()
        self.all: list[Process] = []
        self.failed: list[Process] = []
        """Those that failed by themselves."""
        self.hopeless = False
        """Whether one ended with the hopeless code."""

    @property
    def running(self) -> list[Process]:
        """In the order of their ids."""
        return [one for one in self.all if one.running]

    @property
    def failures(self) -> int:
        """How many failed by themselves."""
        return len(self.failed)

    @property
    def finished(self) -> bool:
        """Whether a trainer ended by itself and in success."""
        return any(one.code == 0 for one in self.all)

    def add(self, count: int) -> None:
        """Starts trainers."""
        for _ in range(count):
            self.all.append(self._start(f"trainer-{self._next}"))
            self._next += 1

    def remove(self, count: int) -> None:
        """SIGTERM to the youngest."""
        for one in self._staying()[-count:]:
            log.info("%s is asked to leave", one.name)
            one.remove()

    def kill(self, name: str | None) -> None:
        """SIGKILL to the one of this name, or to the youngest."""
        found = [one for one in self._staying() if name in (None, one.name)]
        for one in found[-1:]:
            log.info("%s is killed (-9)", one.name)
            one.kill()

    def look(self, worth: Callable[[], bool] = lambda: True) -> None:
        """Replaces those that failed by themselves, as long as the budget lasts.

        Args:
            worth: Whether the job still needs trainers; asked once one has failed.
        """
        for one in list(self.all):
            if one.running:
                self._see_off(one)
                continue
            if one.name in self._seen:
                continue
            self._seen.add(one.name)
            if one.asked or one.code in (0, EXIT_CODE):
                log.info("%s ended: %s", one.name, state(one))
                continue
            self.failed.append(one)
            log.warning("%s failed: %s; its last line: %s", one.name, state(one), one.last or "-")
            if one.code == self._hopeless_code:
                self.hopeless = True
            elif self.failures <= MOST_FAILURES and worth():
                self.add(1)

    def _see_off(self, one: Process) -> None:
        """What does not end on SIGTERM is ended, as a kubelet does."""
        if one.asked == "removed" and clock.monotonic_s() - one.asked_s > _GRACE_S:
            log.warning("%s did not leave within %g s: it is killed", one.name, _GRACE_S)
            one.kill()

    def _staying(self) -> list[Process]:
        return [one for one in self.running if not one.asked]


def state(one: Process, busy: str = "training") -> str:
    """In words, such as `training` or `failed with exit code 1`.

    Args:
        one: The process.
        busy: What it does while it runs.
    """
    code = one.code
    if code is None:
        return "leaving" if one.asked else busy
    if code == 0:
        return "done"
    if one.asked == "killed" and code < 0:
        return "killed (-9)"
    if code == EXIT_CODE:
        return "left (143)"
    return f"failed by signal {-code}" if code < 0 else f"failed with exit code {code}"
