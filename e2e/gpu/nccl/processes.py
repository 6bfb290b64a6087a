"""Processes of ranks: their environment, and their end within a limit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from e2e.gpu.nccl.options import Options
from e2e.gpu.nccl.report import Report

ROOT = Path(__file__).parents[3]
RANK_PROGRAM = "e2e.gpu.nccl.rank"
_STACKS_S = 3.0
"""From SIGABRT, on which Python prints the stacks of all threads, to SIGKILL."""
_KILL_S = 10.0
_WARNING = re.compile(r"\S+ NCCL WARN .*")
_WARNINGS = 3
_STACK_START = "(most recent call first)"
_ENVIRONMENT = {
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_CUMEM_HOST_ENABLE": "0",
    "NCCL_DEBUG": "WARN",
    "NCCL_IB_DISABLE": "1",
    "NCCL_MAX_NCHANNELS": "2",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_NET": "Socket",
    "NCCL_NET_PLUGIN": "none",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_RAS_ENABLE": "0",
    "NCCL_RUNTIME_CONNECT": "0",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "=lo",
    "OMP_NUM_THREADS": "1",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUNBUFFERED": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_BLOCKING_WAIT": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_NONBLOCKING_TIMEOUT": "30",
    "TORCH_NCCL_PROPAGATE_ERROR": "0",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "0",
}
"""Several ranks on one card: sums go by TCP on loopback, and torch ends nothing by itself."""


def one_card(host: str) -> dict[str, str]:
    """Returns the variables of a process that shares its card with others.

    NCCL refuses two ranks on one card of one host. With its own `NCCL_HOSTID`, each rank is a host.

    Args:
        host: Another one for each process.
    """
    return {**_ENVIRONMENT, "NCCL_HOSTID": host}


def environment(options: Options) -> dict[str, str]:
    """Returns the environment of a rank."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    own = one_card(f"{options.part}-{options.rank}")
    return {**kept, **own, "TMPDIR": options.folder}


class RankProcess:
    """A rank that runs; its output goes to the log in the folder."""

    def __init__(self, options: Options, program: str = RANK_PROGRAM) -> None:
        """Starts the process.

        Args:
            options: What the rank plays.
            program: The module to run.
        """
        self.options = options
        with options.log().open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", program, options.text()],
                cwd=ROOT,
                env=environment(options),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def rank(self) -> int:
        """The number of the rank."""
        return self.options.rank

    def report(self) -> Report:
        """Returns what the rank has reported so far."""
        return Report.read(self.options.report())

    def exit_code(self) -> int | None:
        """Returns how the process ended, or None while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Returns whether the process ends in time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self, *, stacks: bool = False) -> bool:
        """Ends the process if it runs.

        Args:
            stacks: Whether its stacks go to the log before.

        Returns:
            Whether it has ended.
        """
        if self.exit_code() is not None:
            return True
        if stacks:
            self.send(signal.SIGABRT)
            if self.wait(_STACKS_S):
                return True
        self.send(signal.SIGKILL)
        return self.wait(_KILL_S)

    def warnings(self) -> str:
        """Returns the last warnings of NCCL in the log, or an empty string."""
        found = [match[0] for line in self._lines() if (match := _WARNING.search(line))]
        return " / ".join(found[-_WARNINGS:])

    def innermost(self) -> str:
        """Returns where the main thread was when its stack was printed, or an empty string."""
        lines = self._lines()
        starts = [index for index, line in enumerate(lines) if _STACK_START in line]
        current = [index for index in starts if lines[index].startswith("Current thread")]
        for index in current or starts[-1:]:
            return " < ".join(_place(line) for line in lines[index + 1 : index + 4])
        return ""

    def _lines(self) -> list[str]:
        return self.options.log().read_text(encoding="utf-8", errors="replace").splitlines()


def _place(line: str) -> str:
    """Returns `file:line function` of a line such as `File "/a/file.py", line 3 in function`."""
    _, _, rest = line.strip().partition('"')
    path, _, place = rest.partition('", line ')
    number, _, function = place.partition(" in ")
    return f"{Path(path).name}:{number} {function}"
