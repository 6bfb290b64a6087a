"""Programs as trainers of a real master in a thread: a test sees what they say, and when."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import edl

from tests.master.serving import TOKEN, Served
from tests.sdk.contract import Master

LIMIT_S = 60.0
"""Ends a hang: nothing that is waited for takes so long."""


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
        self.served = Served(folder / "journal", heartbeat_s=heartbeat_s)
        self._folder = folder
        self._trainers: list[Trainer] = []
        self._sessions: list[edl.Session] = []

    @property
    def url(self) -> str:
        """What EDL_MASTER says."""
        return f"http://127.0.0.1:{self.served.port}"

    def environ(self, name: str) -> dict[str, str]:
        """Of a trainer."""
        told = {"EDL_MASTER": self.url, "EDL_TOKEN": TOKEN, "EDL_TRAINER": name}
        more = {"EDL_ADDRESS": "127.0.0.1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        return {**os.environ, **told, **more}

    def start(self, name: str, *command: str | Path, python: str = sys.executable) -> Trainer:
        """Starts a trainer."""
        process = subprocess.Popen(  # noqa: S603 - our own program
            [python, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self._folder,
            env=self.environ(name),
        )
        self._trainers.append(Trainer(process))
        return self._trainers[-1]

    def join(self, name: str) -> edl.Session:
        """A session of this process, for example to hold a task: the job is not done before."""
        self._sessions.append(edl.Session(edl.Settings(self.url, TOKEN, name, patience_s=LIMIT_S)))
        return self._sessions[-1]

    def done(self, dataset: str) -> int:
        """Records of a data set that are acknowledged, each once an epoch."""
        _, status = Master(self.served.port, TOKEN).ask("GET", "/v1/status")
        return int(status["datasets"].get(dataset, {}).get("done_records", 0))

    def close(self) -> None:
        """Nothing is left."""
        for one in self._trainers:
            one.process.kill()
            one.ends()
        for session in self._sessions:
            session.leave()
        self.served.stop()
