"""A process of an agent, whose stderr the agent watches."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from edl import clock
from edl.agent.device_faults import ErrorOutput
from edl.local import child

_CHUNK_BYTES = 1 << 16
_OUTPUT_S = 0.5
"""How long to wait for the last lines of a process that has ended."""
_MAX_REASON = 300
_STDERR = 2


class WorkerProcess:
    """A process in its own process group; its stderr is passed on to the agent's stderr."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_change: Callable[[], None],
    ) -> None:
        """Starts the process.

        Args:
            command: The absolute path of the program, and its arguments.
            environment: The complete environment.
            on_change: Called on any thread when the process has ended.
        """
        starter = [sys.executable, "-S", child.__file__, str(os.getpid())]
        self.process = subprocess.Popen(  # noqa: S603 - runs the program that the user named
            [*starter, *command],
            env=dict(environment),
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._output = ErrorOutput()
        self._on_change = on_change
        self._fault_s: float | None = None
        """Monotonic time at which the process reported a device fault."""
        self._relay = threading.Thread(target=self._pass_on, name="edl-stderr", daemon=True)
        self._relay.start()
        threading.Thread(target=self._watch, name="edl-worker", daemon=True).start()

    def failure(self, wedged_s: float) -> str:
        """Describes how the process failed; returns "" if it did not.

        Args:
            wedged_s: How long the process may live after it reported a device fault.
        """
        code = self.process.poll()
        if code:
            how = f"was killed by {_signal_name(-code)}" if code < 0 else f"exited with code {code}"
            self._relay.join(_OUTPUT_S)
            reason = (self._output.fault or self._output.last_line)[:_MAX_REASON]
            return f"{how}: {reason}" if reason else how
        if code is None and self._fault_s is not None:
            since_s = clock.monotonic_s() - self._fault_s
            if since_s >= wedged_s:
                fault = self._output.fault[:_MAX_REASON]
                return f"did not end within {wedged_s:g} s after the device fault {fault!r}"
        return ""

    @property
    def is_stopped(self) -> bool:
        """Whether the process is stopped, for example by SIGSTOP; False on systems without /proc."""
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[:1] == ["T"]

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process and its children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _pass_on(self) -> None:
        assert self.process.stderr is not None  # noqa: S101 - Popen was called with PIPE
        with self.process.stderr as stream:
            while chunk := os.read(stream.fileno(), _CHUNK_BYTES):
                self._output.add(chunk)
                if self._output.fault and self._fault_s is None:
                    self._fault_s = clock.monotonic_s()
                with contextlib.suppress(OSError):  # the agent's stderr may be closed
                    while chunk:
                        chunk = chunk[os.write(_STDERR, chunk) :]
        self._output.end()

    def _watch(self) -> None:
        self.process.wait()
        self._on_change()


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
