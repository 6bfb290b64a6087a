"""Programs as trainers of a real master in a thread: a test sees what they say, and when."""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import edl
import pytest
from edl import __main__
from edl.master import session as session_module

from tests.master.serving import TOKEN, Served
from tests.sdk.support.contract import Master

LIMIT_S = 100.0
"""Ends a hang: nothing that is waited for takes so long."""


@dataclass(frozen=True)
class Ended:
    """What became of a trainer that was the only one of its job."""

    code: int
    out: str
    err: str
    status: dict[str, Any]
    """Of its master, at the end."""

    @property
    def last(self) -> str:
        """The last line of what it said to the terminal."""
        return self.out.splitlines()[-1] if self.out else self.err


class Lone:
    """Calls `edl` as the only trainer of a new job, in this process and its main thread."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, said: pytest.CaptureFixture[str]
    ) -> None:
        self._folder, self._patch, self._said = folder, patch, said
        self._jobs = 0

    def __call__(self, *words: str) -> Ended:
        """Trains or predicts to the end, in the folder."""
        self._jobs += 1
        job = Job(self._folder / f"job-{self._jobs}")
        try:
            return self.of(job, "trainer-0", *words)
        finally:
            job.close()

    def of(self, job: "Job", name: str, *words: str) -> Ended:
        """The same as a trainer of this job."""
        self._patch.setattr(session_module, "_default", None)
        self._patch.chdir(self._folder)
        for variable, value in job.told(name).items():
            self._patch.setenv(variable, value)
        handler = signal.getsignal(signal.SIGTERM)
        self._said.readouterr()
        try:
            code = __main__.main(list(words))
            if session_module._default is not None:  # noqa: SLF001 - only a process that ends does it itself
                session_module._default.leave()  # noqa: SLF001 - see above
            said = self._said.readouterr()
            return Ended(code, said.out, said.err, job.status)
        finally:
            signal.signal(signal.SIGTERM, handler)


class Trainer:
    """A process, and the lines that it has said so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self._lines: list[str] = []
        self._said = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """All that it has said."""
        with self._said:
            return "".join(self._lines)

    def says(self, wanted: str) -> None:
        """Waits until it has said this."""
        with self._said:
            self._said.wait_for(lambda: self._over or wanted in "".join(self._lines), LIMIT_S)
        assert wanted in self.text, self.text

    def ends(self) -> int:
        """Its exit code, once it has ended and all that it said was read."""
        code = self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with self._said:
                    self._lines.append(line)
                    self._said.notify_all()
        with self._said:
            self._over = True
            self._said.notify_all()


class Job:
    """A master and its trainers; `close` ends them all."""

    def __init__(self, folder: Path, *, heartbeat_s: float = 5.0) -> None:
        folder.mkdir(exist_ok=True)
        self.served = Served(folder / "journal", heartbeat_s=heartbeat_s)
        self.folder = folder
        self._trainers: list[Trainer] = []
        self._sessions: list[edl.Session] = []

    @property
    def url(self) -> str:
        """What EDL_MASTER says."""
        return f"http://127.0.0.1:{self.served.port}"

    def told(self, name: str) -> dict[str, str]:
        """What a trainer's environment says."""
        found = {"EDL_MASTER": self.url, "EDL_TOKEN": TOKEN, "EDL_TRAINER": name}
        return {**found, "EDL_ADDRESS": "127.0.0.1", "OMP_NUM_THREADS": "1"}

    def start(self, name: str, *command: str | Path, python: str = sys.executable) -> Trainer:
        """Starts a trainer."""
        process = subprocess.Popen(  # noqa: S603 - our own program
            [python, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env={**os.environ, **self.told(name), "PYTHONUNBUFFERED": "1"},
        )
        self._trainers.append(Trainer(process))
        return self._trainers[-1]

    def join(self, name: str) -> edl.Session:
        """A session of this process, for example to hold a task: the job is not done before."""
        self._sessions.append(edl.Session(edl.Settings(self.url, TOKEN, name, patience_s=LIMIT_S)))
        return self._sessions[-1]

    @property
    def status(self) -> dict[str, Any]:
        """The master's."""
        return Master(self.served.port, TOKEN).ask("GET", "/v1/status")[1]

    def done(self, dataset: str) -> int:
        """Records of a data set that are acknowledged, each once an epoch."""
        return int(self.status["datasets"].get(dataset, {}).get("done_records", 0))

    def close(self) -> None:
        """Nothing is left."""
        for one in self._trainers:
            one.process.kill()
            one.ends()
        for session in self._sessions:
            session.leave()
        self.served.stop()
