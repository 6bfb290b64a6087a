"""Pods of two processes that hold a model together, as members of `tests.sdk.sync.fleets`.

They are forked from a process that has imported torch, which takes longer than all the rest. What is here
in the place of `edl agent --replica` does the same: where one process is lost, it starts all again.
"""

import contextlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from edl import clock
from edl.local.ports import free_ports
from edl.sync import parts
from edl.sync.state_stream import StateSender

from tests.sdk.sync.fleets import Fleet, Member
from tests.sdk.torch import program

PROCESSES = 2
_POLL_S = 0.02
_FROZEN_POLLS = 25
_BYTES, _PART_BYTES = 1 << 16, 512


class ForkedProcess:
    """A process that waits for what it is to do; has what is used of `subprocess.Popen`."""

    def __init__(self, waiting: list["ForkedProcess"]) -> None:
        """Forks it, where no thread runs yet.

        Args:
            waiting: Those that were forked before.
        """
        reading, self._writing = os.pipe()
        self._code: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._writing)
            for other in waiting:
                other.close()
            order = os.read(reading, _BYTES)
            if order:
                _be_pod(**json.loads(order))
            os._exit(0)
        os.close(reading)

    def begin(self, **order: Any) -> None:
        """Tells it what to do: the arguments of `_be_pod`."""
        os.write(self._writing, json.dumps(order).encode())

    def poll(self) -> int | None:
        """As of `subprocess.Popen`."""
        if self._code is None:
            pid, code = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(code) if pid else None
        return self._code

    def wait(self, timeout: float) -> int | None:
        """As of `subprocess.Popen`, but that it does not raise."""
        until_s = clock.monotonic_s() + timeout
        while self.poll() is None and clock.monotonic_s() < until_s:
            threading.Event().wait(_POLL_S)
        return self.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """As of `subprocess.Popen`."""
        send(self.pid, number)

    def kill(self) -> None:
        """As of `subprocess.Popen`."""
        send(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends one that waits."""
        os.close(self._writing)


class Pod(Member):
    """A pod; `process` is its agent."""

    def workers(self) -> list[int]:
        """The ids of the processes that its agent has started."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return [int(child) for child in children.split()]

    def send(self, number: signal.Signals) -> None:
        """Sends a signal: those that no process can handle reach all of them, as in a container."""
        self.frozen = number == signal.SIGSTOP
        all_processes = [self.process.pid]
        if number in {signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT}:
            all_processes += self.workers()
        for pid in all_processes:
            send(pid, number)


class PodFleet(Fleet):
    """A fleet whose members are pods, forked before."""

    def __init__(
        self, folder: Path, options: dict[str, Any], forked: list[ForkedProcess], processes: int
    ) -> None:
        """As in `Fleet`.

        Args:
            folder: As in `Fleet`.
            options: As in `Fleet`.
            forked: Processes that wait; each pod takes one of them.
            processes: Of each pod; 0 for one that has the whole model.
        """
        super().__init__(folder, options)
        self._forked, self._processes = forked, processes

    def add(self, **changes: Any) -> Pod:
        """As in `Fleet`."""
        name = f"pod-{len(self.members)}"
        notes, log = self.folder / f"{name}.jsonl", self.folder / f"{name}.log"
        process = self._forked.pop()
        environ = {key: value for key, value in self._environ.items() if key.startswith("EDL_")}
        process.begin(
            environ={**environ, "EDL_TRAINER": name},
            log=str(log),
            notes=str(notes),
            options={**self.options, **changes},
            processes=self._processes,
        )
        pod = Pod(name, process, notes, log, clock.monotonic_s())  # type: ignore[arg-type]  # as used here
        self.members.append(pod)
        return pod

    def close(self) -> None:
        """As in `Fleet`; with all processes of each pod."""
        for member in self.members:
            if member.lives:
                member.send(signal.SIGKILL)
        super().close()


def send(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _be_pod(
    environ: dict[str, str], log: str, notes: str, options: dict[str, Any], processes: int
) -> None:
    """Starts the processes of a pod, again and again, until all have finished."""
    os.environ.update(environ)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if options.pop("in_parts", False):
        parts.MIN_BYTES, StateSender.part_bytes = 1, _PART_BYTES
    text = json.dumps(options)
    if not processes:
        program.main(notes, text)
        return
    pids: list[int] = []
    terminated: list[int] = []

    def pass_on(number: int, _: object) -> None:
        terminated.append(number)
        for pid in pids:
            send(pid, signal.SIGTERM)

    while True:
        port = free_ports(1)[0]
        pids = [_fork_worker(rank, processes, port, notes, text) for rank in range(processes)]
        signal.signal(signal.SIGTERM, pass_on)
        codes = _codes_of(pids, is_leaving=lambda: bool(terminated))
        if terminated:
            os._exit(143)
        if not any(codes):
            return


def _fork_worker(rank: int, size: int, port: int, notes: str, text: str) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        program.main(notes, text)
        code = 0
    except SystemExit as error:
        code = int(str(error.code))
    except BaseException as error:  # noqa: BLE001 - the code says it
        print(f"process {rank}: {type(error).__name__}: {error}", flush=True)  # noqa: T201 - a log
    os._exit(code)


def _codes_of(pids: list[int], *, is_leaving: Any) -> list[int]:
    """Waits until all have ended; where one fails or is frozen, ends the others."""
    codes: dict[int, int] = {}
    frozen_polls = 0
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    codes[pid] = os.waitstatus_to_exitcode(status)
        frozen = any(_is_stopped(pid) for pid in pids if pid not in codes)
        frozen_polls = frozen_polls + 1 if frozen else 0
        if (any(codes.values()) and not is_leaving()) or frozen_polls > _FROZEN_POLLS:
            for pid in pids:
                if pid not in codes:
                    send(pid, signal.SIGKILL)
        threading.Event().wait(_POLL_S)
    return [codes[pid] for pid in pids]


def _is_stopped(pid: int) -> bool:
    about = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return about.rpartition(")")[2].split()[0] == "T"
