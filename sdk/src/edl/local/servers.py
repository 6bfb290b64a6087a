"""The parameter servers of a run: started beside the master, and started again where they die."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edl import clock
from edl.backoff import Backoff
from edl.errors import EdlError, SettingError
from edl.local.processes import Process

log = logging.getLogger("edl.run")

_STABLE_S = 5.0
_MOST_DEATHS = 5
"""In a row, each soon after the start before."""


def require() -> None:
    """Makes sure that there is a server to start.

    Raises:
        SettingError: It is not installed.
    """
    if importlib.util.find_spec("pserver") is None:
        raise SettingError(
            "--async needs parameter servers, which are not installed here: install "
            f"edl-control-plane into the environment of {sys.executable}"
        )


def name_of(index: int) -> str:
    """What a server is called on the screen, in the schedule and in its log's name."""
    return f"server-{index}"


def command(index: int, ports: list[int], job: str, checkpoints: Path) -> list[str]:
    """How a server is started; under the same address each time."""
    # -P: a file `pserver.py` where the user is must not be taken for it
    program = [sys.executable, "-P", "-m", "pserver", "--listen", f"127.0.0.1:{ports[index]}"]
    program += ["--index", str(index), "--of", str(len(ports)), "--job", job]
    return [*program, "--checkpoints", str(checkpoints)]


@dataclass
class _Kept:
    process: Process
    begun_s: float
    backoff: Backoff
    again_at_s: float | None = None
    deaths: int = 0


class Servers:
    """Keeps them running."""

    def __init__(self, start: Callable[[int], Process], count: int) -> None:
        self._start = start
        now_s = clock.monotonic_s()
        self._all = [_Kept(start(index), now_s, Backoff()) for index in range(count)]

    @property
    def all(self) -> list[Process]:
        """In order of their index; of each the newest process."""
        return [one.process for one in self._all]

    @property
    def deaths(self) -> int:
        """How often one was started again."""
        return sum(one.deaths for one in self._all)

    def look(self) -> None:
        """Starts those again that ended.

        Raises:
            EdlError: One dies again and again.
        """
        now_s = clock.monotonic_s()
        for index, one in enumerate(self._all):
            if not one.process.running:
                self._revive(index, one, now_s)

    def kill(self, name: str) -> bool:
        """SIGKILL to the one of this name; False where there is none."""
        found = [one.process for one in self._all if one.process.name == name]
        for one in found:
            log.info("%s is killed (-9)", one.name)
            one.kill()
        return bool(found)

    def end(self, grace_s: float) -> None:
        """SIGTERM to all, so that each writes a last checkpoint, and SIGKILL after the grace."""
        for one in self.all:
            one.remove()
        until_s = clock.monotonic_s() + grace_s
        for one in self.all:
            if not one.wait(max(0.0, until_s - clock.monotonic_s())):
                one.kill()
                one.wait(grace_s)

    def _revive(self, index: int, one: _Kept, now_s: float) -> None:
        if one.again_at_s is None:
            one.deaths += 1
            if now_s - one.begun_s > _STABLE_S:
                one.backoff.reset()
            one.again_at_s = now_s + one.backoff.next_s()
            one.process.wait(1)  # its last line
            if one.backoff.tries > _MOST_DEATHS:
                word = one.process.last or "no word"
                raise EdlError(f"{one.process.name} does not stay alive: {word}")
            log.warning("%s ended (%s): starting it again", one.process.name, one.process.code)
        elif now_s >= one.again_at_s:
            one.again_at_s, one.begun_s = None, now_s
            one.process = self._start(index)
