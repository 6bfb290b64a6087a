"""Pods of two processes that hold a model together, as members of `tests.sdk.sync.fleets`.

Run as a program it is the agent of one pod; arguments as those of `tests.sdk.torch.program`.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.sdk.sync.fleets import Fleet, Member

PROCESSES = 2
_RESTARTS = "1000"


class Pod(Member):
    """A pod; `process` is its agent."""

    def workers(self) -> list[int]:
        """The ids of the processes that its agent has started."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return [int(child) for child in children.split()]

    def send(self, number: signal.Signals) -> None:
        """Sends the agent a signal; those that cannot be handled reach all processes, as of a container."""
        self.frozen = number == signal.SIGSTOP
        all_processes = [self.process.pid]
        if number in {signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT}:
            all_processes += self.workers()
        for pid in all_processes:
            send(pid, number)


class PodFleet(Fleet):
    """A fleet whose members are pods."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        super().__init__(folder, options, program="tests.sdk.torch.pods")

    def add(self, **changes: Any) -> Pod:
        """As in `Fleet`."""
        member = super().add(**changes)
        pod = Pod(member.name, member.process, member.notes, member.log, member.began_s)
        self.members[-1] = pod
        return pod

    def close(self) -> None:
        """As in `Fleet`; agents that are killed leave their processes to the kernel."""
        for member in self.members:
            if member.lives:
                member.send(signal.SIGKILL)
        super().close()


def send(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def main(path: str, text: str) -> None:
    """Becomes the agent of a pod."""
    program = [sys.executable, "-m", "tests.sdk.torch.program", path, text]
    how = ["--replica", "--nproc", str(PROCESSES), "--max-restarts", _RESTARTS]
    command = [sys.executable, "-m", "edl", "agent", *how, "--", *program]
    os.execv(sys.executable, command)  # noqa: S606 - our own program


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
