"""JAX's coordination services, one for each round, in processes that end apart from a trainer's."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading

from edl.errors import RoundOver

_KEPT = 2
"""A trainer that was lost may have asked for a round that is over: that must not end the newest one's service."""


class CoordinationServices:
    """Starts them, and ends those of earlier rounds; thread-safe.

    They are killed: a service that ends in order tells its members, which JAX then aborts.
    """

    def __init__(self, host: str) -> None:
        """Starts nothing yet.

        Args:
            host: At which members reach the services.
        """
        self._host = host
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[str]] = []
        self._next: subprocess.Popen[str] | None = None
        """It waits for the next round, which then does not wait for the start of Python."""

    def serve(self, members: int) -> str:
        """Starts the service of a round; returns its address.

        Raises:
            RoundOver: It has ended; the next call starts another.
        """
        with self._lock:
            process, self._next = self._next or self._start(), None
            address = _ask(process, members)
            self._running.append(process)
            for old in self._running[:-_KEPT]:
                _end(old)
            del self._running[:-_KEPT]
            self._next = self._start()
        return address

    def close(self) -> None:
        """Ends them: their rounds are over."""
        with self._lock:
            for process in (*self._running, *([self._next] if self._next else [])):
                _close_pipes(process)
            self._running.clear()
            self._next = None

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "edl.jax.service", self._host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def _ask(process: subprocess.Popen[str], members: int) -> str:
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise RoundOver("the coordination service has no pipes")
    try:
        print(members, file=stdin, flush=True)
        address = stdout.readline().strip()
    except OSError as error:
        _end(process)
        raise RoundOver(f"the coordination service has ended: {error}") from error
    if not address:
        _end(process)
        raise RoundOver("the coordination service has ended: see its lines above")
    return address


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    _close_pipes(process)


def _close_pipes(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was written to a process that has ended
                pipe.close()
