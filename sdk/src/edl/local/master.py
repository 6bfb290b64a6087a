"""The master of a run: found, started, asked for its status, started again when it dies."""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from edl import clock
from edl.backoff import Backoff
from edl.connection import Connection
from edl.errors import EdlError, MasterError, SettingError
from edl.local.processes import Process

log = logging.getLogger("edl.run")

NAME = "master"
_STATUS_S = 0.5
_HEARTBEAT_S = 1
"""On one machine a trainer that is not heard three times is gone."""
_LAST_WORD_S, _LOOK_S = 15.0, 0.05
_STABLE_S = 5.0
_MOST_DEATHS = 3
"""In a row, each soon after the start before."""


def require() -> None:
    """Makes sure that there is a master to start.

    Raises:
        SettingError: It is not installed.
    """
    if importlib.util.find_spec("master") is None:
        raise SettingError(
            "edl run needs the master, which is not installed here: install edl-control-plane into "
            f"the environment of {sys.executable}"
        )


def command(journal: str, port: int) -> list[str]:
    """How the master is started."""
    # -P: a file `master.py` where the user is must not be taken for it
    program = [sys.executable, "-P", "-m", "master", "--listen", f"127.0.0.1:{port}"]
    return [*program, "--journal", journal, "--heartbeat-seconds", str(_HEARTBEAT_S)]


class Keeper:
    """Keeps a master running, and what it last said."""

    def __init__(self, start: Callable[[], Process], url: str, token: str) -> None:
        self._start = start
        self._link = Connection(url, token)
        self._backoff = Backoff()
        self._begun_s = clock.monotonic_s()
        self._again_at_s: float | None = None
        self._asked_s = 0.0
        self.deaths = 0
        self.status: Mapping[str, Any] = {}
        self.serving = False
        self.process = start()

    def look(self) -> None:
        """Starts a dead master again, and asks a living one for its status now and then.

        Raises:
            EdlError: It dies again and again, or does not want to start.
        """
        now_s = clock.monotonic_s()
        if not self.process.running:
            self._revive(now_s)
        elif now_s - self._asked_s >= _STATUS_S:
            self.ask()

    def ask(self) -> None:
        """Asks for the status; a master that does not answer keeps the one before."""
        self._asked_s = clock.monotonic_s()
        try:
            self.status = self._link.call("GET", "/v1/status", answer_s=2.0)
        except MasterError as error:
            if self.serving:
                log.info("%s", error)
            self.serving = False
        else:
            self.serving = True

    def last_word(self) -> bool:
        """Asks until there is an answer, which a master that has just died gives from its journal.

        Returns:
            False if there was none for long: then the status is an old one.

        Raises:
            EdlError: It dies again and again.
        """
        until_s = clock.monotonic_s() + _LAST_WORD_S
        while clock.monotonic_s() < until_s:
            self._asked_s = -_STATUS_S
            self.look()
            if self.process.running and self.serving:
                return True
            threading.Event().wait(_LOOK_S)
        return False

    def close(self) -> None:
        """Asks no more."""
        self._link.close()

    def _revive(self, now_s: float) -> None:
        if self._again_at_s is None:
            self.serving = False
            self.deaths += 1
            if now_s - self._begun_s > _STABLE_S:
                self._backoff.reset()
            self._again_at_s = now_s + self._backoff.next_s()
            self.process.wait(1)  # its last line
            refuses = not self.status and (self.process.code or 0) > 0
            if refuses or self._backoff.tries > _MOST_DEATHS:
                raise EdlError(f"the master does not stay alive: {self.process.last or 'no word'}")
            log.warning("the master ended (%s): starting it again", self.process.code)
        elif now_s >= self._again_at_s:
            self._again_at_s, self._begun_s = None, now_s
            self.process = self._start()
