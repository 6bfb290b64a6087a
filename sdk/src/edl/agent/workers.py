"""The processes of one agent in one round."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from edl import clock
from edl.local import child

_KILLED_S = 5.0
"""How long a killed process may take to end."""


class Workers:
    """Starts processes, and ends them and what they have started."""

    def __init__(self, command: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        """Starts one process for each environment.

        Args:
            command: An absolute path, and arguments.
            environments: Of the processes, in order of local rank.
        """
        self._changed = threading.Event()
        self._processes: list[subprocess.Popen[bytes]] = []
        starter = [sys.executable, "-m", child.__name__, str(os.getpid())]
        try:
            for environment in environments:
                self._processes.append(
                    subprocess.Popen(  # noqa: S603 - the program is what the user asked for
                        [*starter, *command], env=dict(environment), start_new_session=True
                    )
                )
        except BaseException:
            self.stop(0.0)
            raise
        for process in self._processes:
            threading.Thread(target=self._watch, args=(process,), daemon=True).start()

    def wait(self, timeout_s: float) -> None:
        """Waits until a process ends, at most this long."""
        if self._changed.wait(timeout_s):
            self._changed.clear()

    @property
    def failure(self) -> str:
        """Which process has failed, in words; "" if none has."""
        for rank, process in enumerate(self._processes):
            code = process.poll()
            if code:
                how = f"was ended by {_signal(-code)}" if code < 0 else f"ended with code {code}"
                return f"process {rank} {how}"
        return ""

    @property
    def have_finished(self) -> bool:
        """Whether all have ended without an error."""
        return all(process.poll() == 0 for process in self._processes)

    def stop(self, grace_s: float) -> None:
        """Ends all: with SIGTERM, and after `grace_s` with SIGKILL."""
        self._signal(signal.SIGTERM)
        until_s = clock.monotonic_s() + grace_s
        while any(p.poll() is None for p in self._processes) and clock.monotonic_s() < until_s:
            self.wait(max(0.0, until_s - clock.monotonic_s()))
        self._signal(signal.SIGKILL)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_KILLED_S)

    def _signal(self, number: signal.Signals) -> None:
        """Sends a signal to the processes and to those that they have started."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._changed.set()


def _signal(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
