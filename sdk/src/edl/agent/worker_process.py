"""One process of an agent, and what it writes to stderr."""

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
"""How long the last lines of a process that has ended may take to arrive."""
_MAX_REASON = 300
_STDERR = 2


class WorkerProcess:
    """A process with a group of its own; its stderr passes through the agent's unchanged."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_change: Callable[[], None],
    ) -> None:
        """Starts it.

        Args:
            command: An absolute path, and arguments.
            environment: The whole of it.
            on_change: Called on any thread when the process has ended, or has named a fault.
        """
        starter = [sys.executable, "-S", child.__file__, str(os.getpid())]
        self.process = subprocess.Popen(  # noqa: S603 - the program is what the user asked for
            [*starter, *command],
            env=dict(environment),
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._output = ErrorOutput()
        self._on_change = on_change
        self._fault_s: float | None = None
        """When it named a fault of its device (monotonic)."""
        self._relay = threading.Thread(target=self._pass_on, name="edl-stderr", daemon=True)
        self._relay.start()
        threading.Thread(target=self._watch, name="edl-worker", daemon=True).start()

    def failure(self, wedged_s: float) -> str:
        """How it has failed, in words; "" if it has not.

        Args:
            wedged_s: How long it may live after it named a fault of its device.
        """
        code = self.process.poll()
        if code:
            how = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"
            self._relay.join(_OUTPUT_S)
            reason = (self._output.fault or self._output.last_line)[:_MAX_REASON]
            return f"{how}: {reason}" if reason else how
        if code is None and self._fault_s is not None:
            since_s = clock.monotonic_s() - self._fault_s
            if since_s >= wedged_s:
                fault = self._output.fault[:_MAX_REASON]
                return f"did not end within {wedged_s:g} s after it said {fault!r}"
        return ""

    @property
    def is_stopped(self) -> bool:
        """Whether it is stopped, as by SIGSTOP; known on Linux only."""
        try:
            about = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        except OSError:
            return False
        return about.rpartition(")")[2].split()[:1] == ["T"]

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process and to those that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _pass_on(self) -> None:
        assert self.process.stderr is not None  # noqa: S101 - it was asked for
        with self.process.stderr as stream:
            while chunk := os.read(stream.fileno(), _CHUNK_BYTES):
                self._output.add(chunk)
                if self._output.fault and self._fault_s is None:
                    self._fault_s = clock.monotonic_s()
                with contextlib.suppress(OSError):  # nobody reads what this agent says
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
