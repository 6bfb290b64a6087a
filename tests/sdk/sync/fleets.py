"""Trainers of one synchronous job as processes, with a real master: signalled, watched, ended."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Self

from edl import clock
from edl.errors import MasterError
from edl.local import child, master, ports, server_processes
from edl.master.connection import Connection
from edl.master.settings import Settings

Json = dict[str, Any]
ROOT = Path(__file__).parents[3]
PROGRAM = "tests.sdk.sync.program"
_LOOK_S = 0.02
_START_S, _END_S, _ANSWER_S = 60.0, 20.0, 20.0


@dataclass(eq=False)
class Member:
    """One trainer; `steps` are the lines it wrote, as far as `look` has read them."""

    name: str
    process: subprocess.Popen[bytes]
    notes: Path
    log: Path
    began_s: float
    frozen: bool = False
    spare: Path | None = None
    """The file for which it waits before it joins the rendezvous."""
    steps: list[Json] = field(default_factory=list)
    ready: bool = False
    """Whether it has read its data."""
    end: Json | None = None
    """Its last line."""
    arrived_s: float = 0.0
    """When it joined the rendezvous and began to train."""
    _read: int = 0

    @property
    def lives(self) -> bool:
        """Whether its process has not ended."""
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self.frozen = number == signal.SIGSTOP
        self.process.send_signal(number)

    def look(self) -> None:
        """Reads the lines it has written since the last call."""
        if not self.notes.exists():
            return
        with self.notes.open("rb") as file:
            file.seek(self._read)
            for raw in file:
                if not raw.endswith(b"\n"):
                    break  # it is being written, or its writer was killed
                self._read += len(raw)
                self._enter(json.loads(raw))

    def first(self, since_s: float, world_size: int) -> Json | None:
        """Its first step after a moment with that many members."""
        first_step: Json | None = None
        for step in reversed(self.steps):
            if step["at_s"] < since_s:
                break
            if step["world"] == world_size:
                first_step = step
        return first_step

    def figures(self) -> Json:
        """Its memory, threads and descriptors now."""
        return figures_of(self.process.pid)

    def _enter(self, line: Json) -> None:
        if "step" in line:
            self.steps.append(line)
        elif "ready" in line:
            self.ready = True
        elif "arrived_s" in line:
            self.arrived_s = line["arrived_s"]
        else:
            self.end = line


class Fleet:
    """All trainers of a job and their master; a context manager that leaves no process behind."""

    def __init__(
        self,
        folder: Path,
        options: Json,
        *,
        python: str = sys.executable,
        program: str = PROGRAM,
        parameter_servers: int = 0,
    ) -> None:
        """Starts the master, and parameter servers if any are requested.

        Args:
            folder: For logs, notes and the journal.
            options: For `tests.sdk.sync.program`.
            python: Runs the trainers.
            program: The trainers' module.
            parameter_servers: How many.
        """
        self.folder, self.options = folder, options
        self._port, *self._served = ports.free_ports(1 + parameter_servers)
        self._python, self._program = python, program
        token = secrets.token_hex(16)
        url = f"http://127.0.0.1:{self._port}"
        self._environ = {**os.environ, "PYTHONPATH": _path(), "OMP_NUM_THREADS": "1"}
        self._environ |= {"EDL_TOKEN": token, "EDL_JOB": "fleet", "EDL_MASTER": url}
        self._link = Connection(url, token)
        self.members: list[Member] = []
        self._master = self._start_master()
        urls = [f"http://127.0.0.1:{port}" for port in self._served]
        self._environ["EDL_PARAMETER_SERVERS"] = ",".join(urls)
        self._servers = [self._start_server(i, self._served) for i in range(len(self._served))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- doing something to it ---------------------------------------------------------------

    def add(self, **changes: Any) -> Member:
        """Starts one more trainer, with options of its own if any are given."""
        name = f"trainer-{len(self.members)}"
        notes, log = self.folder / f"{name}.jsonl", self.folder / f"{name}.log"
        options = json.dumps({**self.options, **changes})
        began_s = clock.monotonic_s()
        process = self._start(
            log, [self._python, "-m", self._program, str(notes), options], {"EDL_TRAINER": name}
        )
        self.members.append(Member(name, process, notes, log, began_s))
        return self.members[-1]

    def hold(self) -> Member:
        """Starts a trainer that waits for `let_in` when it is ready."""
        go = self.folder / f"go-{len(self.members)}"
        member = self.add(go=str(go))
        member.spare = go
        return member

    def let_in(self, member: Member) -> None:
        """Lets a held trainer join."""
        assert member.spare is not None
        member.spare.touch()
        member.spare = None

    def kill_trainers(self) -> None:
        """Kills all trainers at once with SIGKILL, frozen ones too; reads their last lines."""
        lost = [member for member in self.members if member.lives]
        for member in lost:
            member.process.kill()
        for member in lost:
            member.process.wait(_END_S)
            member.look()

    def kill_master(self) -> None:
        """Kills the master with SIGKILL; it is not restarted."""
        self._master.kill()
        self._master.wait(_END_S)

    def start_master(self) -> None:
        """Starts another master with the same journal and address."""
        self._master = self._start_master()

    def restart_server(self, index: int, number: signal.Signals) -> None:
        """Ends a parameter server by a signal, and starts it again at its address."""
        self._servers[index].send_signal(number)
        self._servers[index].wait(_END_S)
        self._servers[index] = self._start_server(index, self._served)

    def settings(self, trainer: str) -> Settings:
        """Those with which this process joins the job."""
        servers = tuple(self._environ["EDL_PARAMETER_SERVERS"].split(","))
        url, token = self._environ["EDL_MASTER"], self._environ["EDL_TOKEN"]
        return Settings(url, token, trainer, servers=servers)

    def close(self) -> None:
        """Ends everything."""
        trainers = [member.process for member in self.members]
        for process in (*trainers, *self._servers, self._master):
            if process.poll() is None:
                process.kill()
                process.wait(_END_S)
        self._link.close()

    # -- seeing what it does -----------------------------------------------------------------

    def active(self) -> list[Member]:
        """Members that should train now, in the order of their start."""
        return [
            member
            for member in self.members
            if member.lives and not (member.frozen or member.spare)
        ]

    def ranked(self) -> list[Member]:
        """Active members in the order of their last known rank."""
        for member in self.members:
            member.look()
        ranked = [member for member in self.active() if member.steps]
        newest = max((member.steps[-1]["round"] for member in ranked), default=0)
        ranked = [member for member in ranked if member.steps[-1]["round"] == newest]
        return sorted(ranked, key=lambda member: int(member.steps[-1]["rank"]))

    def newest_step(self) -> int:
        """The highest number of a step that a member has written; 0 before the first."""
        for member in self.members:
            member.look()
        return max(
            (int(member.steps[-1]["step"]) for member in self.members if member.steps), default=0
        )

    def status(self) -> Json:
        """The master's."""
        status: Json = self._link.call("GET", "/v1/status", answer_s=_ANSWER_S)
        return status

    def until(self, true: Callable[[], bool], timeout_s: float) -> bool:
        """Whether something became true in time."""
        until_s = clock.monotonic_s() + timeout_s
        while not true():
            if clock.monotonic_s() > until_s:
                return False
            Event().wait(_LOOK_S)
        return True

    def together(
        self, members: Sequence[Member], since_s: float, timeout_s: float
    ) -> list[Json] | None:
        """The first step after a moment that each of these members made with all others of them.

        Returns:
            Nothing where that did not happen in time.
        """
        steps: list[Json | None] = []

        def done() -> bool:
            for member in members:
                member.look()
            steps[:] = [member.first(since_s, len(members)) for member in members]
            return all(steps)

        if not self.until(done, timeout_s):
            return None
        return [step for step in steps if step is not None]

    def ended(self, members: Collection[Member], timeout_s: float) -> bool:
        """Whether these ended in time; reads their last lines."""
        ended = self.until(lambda: not any(member.lives for member in members), timeout_s)
        for member in members:
            member.look()
        return ended

    # -- inside ------------------------------------------------------------------------------

    def _start_master(self) -> subprocess.Popen[bytes]:
        program = master.command(str(self.folder / "journal"), self._port)
        process = self._start(self.folder / "master.log", program, {})
        if not self.until(self._serves, _START_S):
            process.kill()
            process.wait(_END_S)
            raise RuntimeError((self.folder / "master.log").read_text(encoding="utf-8")[-500:])
        return process

    def _start_server(self, index: int, served: list[int]) -> subprocess.Popen[bytes]:
        program = server_processes.command(index, served, "fleet", self.folder / "servers")
        return self._start(self.folder / f"server-{index}.log", program, {})

    def _serves(self) -> bool:
        try:
            self.status()
        except MasterError:
            return False
        return True

    def _start(
        self, log: Path, program: Sequence[str], environ: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        # ended by the kernel with this process, however that ends
        command = [sys.executable, "-S", child.__file__, str(os.getpid()), *program]
        with log.open("ab") as file:
            return subprocess.Popen(  # noqa: S603 - our own programs
                command, env={**self._environ, **environ}, cwd=ROOT, stdout=file, stderr=file
            )


def figures_of(pid: int) -> Json:
    """Memory, threads and descriptors of a process now."""
    about = Path(f"/proc/{pid}")
    lines = (about / "status").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {
        "memory_mb": int(fields["VmRSS"].split()[0]) / 1024,
        "threads": int(fields["Threads"]),
        "descriptors": len(list((about / "fd").iterdir())),
    }


def _path() -> str:
    """The PYTHONPATH with which programs find the tests' modules."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
