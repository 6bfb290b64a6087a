"""A master and trainers as processes of this machine, for the cells that train whole jobs."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from edl.errors import MasterError
from edl.local import child, programs
from edl.local.ports import free_ports
from edl.master.connection import Connection

from e2e.gpu.cell import CellError, Run

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0
"""The longest wait."""
_GRACE_S, _POLL_S = 5.0, 0.01
_SHOWN_LINES = 15

_PREPARED = """
import pathlib, runpy, sys, time
import edl.torch, torch.utils.data
_, go, hold, *sys.argv = sys.argv
plain = torch.Tensor.backward
def held(*args, **options):
    while pathlib.Path(hold).exists():
        time.sleep(0.01)
    return plain(*args, **options)
torch.Tensor.backward = held
device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
torch.optim.Adam([torch.zeros(1).to(device)])
print(f"prepared on {device.type}, matmul {torch.get_float32_matmul_precision()}", flush=True)
while not pathlib.Path(go).exists():
    time.sleep(0.01)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Loads torch, its optimizers and the device, which takes longer than the job, and waits for a file.

While another file exists, its steps are held.
"""


def descendants(pid: int) -> list[int]:
    """Returns the descendants of a process."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child_pid for child_pid, parent in parents.items() if parent == one]
    return found[1:]


class Trainer:
    """A process, and its lines so far with the times at which they came."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path) -> None:
        """Reads in a thread, which copies all lines to the log."""
        self.name, self.process = name, process
        self.lines: list[tuple[float, str]] = []
        """Each after the monotonic time at which it came."""
        self._reader = threading.Thread(target=self._read, args=(log,), daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """All lines."""
        return "".join(line for _, line in list(self.lines))

    @property
    def is_over(self) -> bool:
        """Whether all its lines have come."""
        return not self._reader.is_alive()

    @property
    def end(self) -> str:
        """Its name and its last lines."""
        return "\n    ".join([f"{self.name}:", *self.text.splitlines()[-_SHOWN_LINES:]])

    def says(self, pattern: str, since_s: float = 0.0) -> float:
        """As `await_line`, of this trainer."""
        return await_line([self], pattern, since_s)

    def ends(self, code: int = 0) -> None:
        """Waits for its end.

        Raises:
            CellError: It still runs after `LIMIT_S`, or its exit code is another.
        """
        try:
            ended = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise CellError(
                f"{self.name} has not ended within {LIMIT_S:.0f} s\n{self.end}"
            ) from None
        self._reader.join(_GRACE_S)
        if ended != code:
            raise CellError(f"{self.name} ended with {ended} instead of {code}\n{self.end}")

    def send(self, number: signal.Signals) -> float:
        """Sends a signal; returns when."""
        self.process.send_signal(number)
        return time.monotonic()

    def kill(self) -> float:
        """Kills it and the processes that it has started, as the end of a pod does; returns when."""
        pids = descendants(self.process.pid)
        since_s = self.send(signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return since_s

    def _read(self, log: Path) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines, log.open("w", encoding="utf-8", buffering=1) as copy:
            for line in lines:
                self.lines.append((time.monotonic(), line))
                copy.write(line)


def await_line(trainers: Sequence[Trainer], pattern: str, since_s: float = 0.0) -> float:
    """Waits until one of these trainers writes a line.

    Args:
        trainers: At least one.
        pattern: A regular expression, which is searched in each line.
        since_s: Earlier lines do not count.

    Returns:
        The monotonic time at which the first such line came.

    Raises:
        CellError: None came within `LIMIT_S`, or all these trainers ended before.
    """
    until_s = time.monotonic() + LIMIT_S
    while True:
        is_late = time.monotonic() > until_s or all(trainer.is_over for trainer in trainers)
        lines = [line for trainer in trainers for line in list(trainer.lines)]
        found = [at_s for at_s, line in lines if at_s >= since_s and re.search(pattern, line)]
        if found:
            return min(found)
        if is_late:
            names = " or ".join(trainer.name for trainer in trainers)
            ends = "\n".join(trainer.end for trainer in trainers)
            how = (
                f"wrote no line {pattern!r} within {LIMIT_S:.0f} s"
                if time.monotonic() > until_s
                else f"ended before a line {pattern!r}"
            )
            raise CellError(f"{names} {how}\n{ends}")
        time.sleep(_POLL_S)


class Job:
    """A master and the trainers of its job, which end with the `with` block."""

    def __init__(self, folder: Path) -> None:
        """Starts the master.

        Args:
            folder: Does not exist; gets the journal and a log of each process.
        """
        folder.mkdir()
        self.folder, self.hold = folder, folder / "hold"
        self._processes: list[Trainer] = []
        token, (port,) = secrets.token_hex(16), free_ports(1)
        url = f"http://127.0.0.1:{port}"
        self._environ = {
            "EDL_MASTER": url,
            "EDL_TOKEN": token,
            "EDL_JOB": "gpu",
            "EDL_ADDRESS": "127.0.0.1",
            "EDL_EXCHANGE_PORT": "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONFAULTHANDLER": "1",
            "PYTHONUNBUFFERED": "1",
        }
        self._connection = Connection(url, token)
        flags = ("--journal", str(folder / "journal"), "--heartbeat-seconds", "0.5")
        master = self._start("master", programs.command("master", port, *flags), self._environ)
        master.says("info serving")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all processes: trainers first, by SIGTERM and then by SIGKILL."""
        self._connection.close()
        for process in reversed(self._processes):
            process.send(signal.SIGTERM)
        until_s = time.monotonic() + _GRACE_S
        for process in reversed(self._processes):
            try:
                process.process.wait(max(0.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.process.wait(LIMIT_S)

    def start(self, name: str, *words: str | Path, **environ: str) -> Trainer:
        """Starts a trainer: Python with these words, and more variables."""
        command = [sys.executable, *map(str, words)]
        return self._start(name, command, {**self._environ, "EDL_TRAINER": name, **environ})

    def prepare(self, name: str, program: Path, *words: str | Path) -> Trainer:
        """Starts a trainer that loads torch, and runs a program once `go` is called."""
        return self.start(name, "-c", _PREPARED, self._go(name), self.hold, program, *words)

    def go(self, *trainers: Trainer) -> float:
        """Lets prepared trainers run their program; returns when."""
        for trainer in trainers:
            self._go(trainer.name).touch()
        return time.monotonic()

    def join(self, *newcomers: Trainer) -> float:
        """Lets prepared trainers join, while all steps are held; returns when they were let.

        Raises:
            CellError: One does not join.
        """
        self.hold.touch()
        since_s = self.go(*newcomers)
        for newcomer in newcomers:
            newcomer.says("joined job")
        self.hold.unlink()
        return since_s

    def state(self) -> str:
        """Returns the job's state as the master sees it, such as "done"."""
        return str(self._status()["state"])

    def done_records(self, dataset: str) -> int:
        """Returns how many records of a data set are acknowledged, each once an epoch."""
        return int(self._status()["datasets"].get(dataset, {}).get("done_records", 0))

    def _status(self) -> Any:
        try:
            return self._connection.call("GET", "/v1/status", answer_s=10.0)
        except MasterError as error:
            raise CellError(f"the master does not answer: {error}") from error

    def _go(self, name: str) -> Path:
        return self.folder / f"go-{name}"

    def _start(self, name: str, command: list[str], environ: dict[str, str]) -> Trainer:
        """Starts a process that ends with this one, even if this one is killed."""
        process = subprocess.Popen(
            [sys.executable, "-S", child.__file__, str(os.getpid()), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **environ},
        )
        self._processes.append(Trainer(name, process, self.folder / f"{name}.log"))
        return self._processes[-1]


def check_prepared(run: Run, *trainers: Trainer) -> None:
    """Waits until trainers have loaded torch, and checks that they have the device in full precision.

    Raises:
        CellError: They have not.
    """
    for trainer in trainers:
        trainer.says("prepared on")
        wanted = f"prepared on {run.device}, matmul highest"
        run.check(wanted in trainer.text, f"{trainer.name} is not {wanted}: {trainer.text!r:.200}")
    run.record(float32_matmul="highest, without tf32")
