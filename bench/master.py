"""The master under load: leases and acknowledgements, each written to disk before the response.

A real master runs in its own process; sixteen trainers with one connection each do no training and
call as fast as they get responses. `python -m bench.master TASKS` processes one epoch and prints
the peak memory of its process.
"""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import orjson
from edl.local.ports import free_ports

from bench.benchmark import Result, Setting, latency_figures
from bench.startup import STARTED_S, accepts
from e2e.measure.criteria import Criterion
from e2e.measure.processes import peak_mb
from master.commands import Acknowledgement, Describe, Join, Work
from master.ledger import Ledger

Json = dict[str, Any]
TRAINERS = 16
TASKS_PER_SECOND, P99_MS, MEMORY_MB, RESTART_S = 5_000.0, 20.0, 200.0, 3.0
"""The required limits."""
AT_ONCE = (1, 8)
"""Tasks leased per call; the criteria apply to the last, which is what prefetching uses."""
_MILLION = 1_000_000
_RECORDS = 1_000_000_000
_SECONDS_A_ROUND = 0.25
_ANSWER_S = 60.0


def run(setting: Setting) -> Result:
    """Measures throughput per number of tasks at once, a restart, and the memory of an epoch."""
    seconds = setting.rounds * _SECONDS_A_ROUND
    raw: Json = {}
    with temporary_home() as home, MasterProcess(home) as master:
        for at_once in AT_ONCE:
            setting.report_progress(
                f"master: {TRAINERS} trainers, {at_once} tasks a call, {seconds:.0f} s"
            )
            raw[f"{at_once}_at_once"] = asyncio.run(_load(master, at_once, seconds))
        setting.report_progress(f"master: {TASKS_PER_SECOND:.0f} tasks a second, {seconds:.0f} s")
        paced = asyncio.run(_load(master, AT_ONCE[-1], seconds, TASKS_PER_SECOND))
        raw["at_the_bars_rate"] = paced
        setting.report_progress("master: killed and started again")
        raw["restart_s"] = master.restart()
    tasks = _MILLION if setting.rounds > len(AT_ONCE) * 5 else _MILLION // 100
    setting.report_progress(f"master: an epoch of {tasks} tasks")
    raw["memory_mb"] = _cold_mb(tasks)
    best = raw[f"{AT_ONCE[-1]}_at_once"]
    criteria = (
        Criterion(
            "master_tasks_per_second", best["tasks_per_s"], "/s", TASKS_PER_SECOND, at_least=True
        ),
        Criterion("master_work_p99_at_5000_ms", paced["p99_ms"], "ms", P99_MS),
        Criterion("master_work_p99_flat_out_ms", best["p99_ms"], "ms"),
        Criterion("master_calls_of_one_task_per_second", raw["1_at_once"]["tasks_per_s"], "/s"),
        Criterion("master_killed_to_serving_s", raw["restart_s"], "s", RESTART_S),
        Criterion("master_million_tasks_mb", raw["memory_mb"], "MB", MEMORY_MB),
    )
    growth = {"work_p99_ms": [paced["p99_ms"]] * len(setting.sizes)}
    return Result(criteria, growth, raw)


@contextmanager
def temporary_home() -> Iterator[Path]:
    """A directory for a master's files."""
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
        yield Path(folder)


class MasterProcess:
    """A master process."""

    def __init__(self, home: Path, heartbeat_s: float = 30.0) -> None:
        self._home, self._heartbeat_s = home, heartbeat_s
        self.token = secrets.token_hex(16)
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(STARTED_S)

    def restart(self) -> float:
        """Kills and restarts it; returns seconds until the new process accepts connections."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(STARTED_S)
        begun_s = perf_counter()
        self._start()
        return perf_counter() - begun_s

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def _flags(self) -> tuple[str, str]:
        return "--heartbeat-seconds", str(self._heartbeat_s)

    def _start(self) -> None:
        program = [sys.executable, "-m", "master", "--listen", f"127.0.0.1:{self.port}"]
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*program, "--journal", str(self._home / "journal"), *self._flags],
                env={**os.environ, "EDL_JOB": "bench", "EDL_TOKEN": self.token},
                stdout=log,
                stderr=log,
            )
        if not accepts(self.port, self._process):
            log_end = (self._home / "log").read_text(encoding="utf-8")[-300:]
            raise RuntimeError(f"the master does not start: {log_end}")


@dataclass
class _Trainer:
    """A trainer with one connection."""

    name: str
    master: MasterProcess
    place: float
    """The phase, 0 to 1: trainers that call at a fixed rate do not call simultaneously."""
    tasks: int = 0
    times_ms: list[float] = field(default_factory=list)
    _call: int = 0

    async def work(self, at_once: int, seconds: float, every_s: float = 0.0) -> None:
        """Leases and acknowledges tasks for some time, at least once.

        Args:
            at_once: Tasks per call.
            seconds: The duration, from the join.
            every_s: The interval of calls; latency counts from the due time, even if the call is
                sent later. 0 sends each call after the previous response.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self.master.port)
        try:
            await self._ask(reader, writer, "/v1/join", {})
            done: list[Json] = []
            due_s = perf_counter() + self.place * every_s
            until_s = perf_counter() + seconds
            while due_s < until_s or not self.times_ms:
                await asyncio.sleep(max(0.0, due_s - perf_counter()))
                begun_s = due_s
                answer = await self._ask(reader, writer, "/v1/work", self._order(done, at_once))
                self.times_ms.append((perf_counter() - begun_s) * 1000)
                self.tasks += answer["results"].count("accepted")
                done = [
                    {"task": task["task"], "attempt": task["attempt"], "steps": 1}
                    for task in answer["tasks"]
                ]
                due_s = due_s + every_s if every_s else perf_counter()
            await self._ask(reader, writer, "/v1/leave", {})
        finally:
            writer.close()

    def _order(self, done: list[Json], at_once: int) -> Json:
        self._call += 1
        scope = {"datasets": ["train"], "kinds": ["training"], "call": self._call}
        return {"done": done, "failed": [], "back": [], "want": at_once, "wait_s": 0, **scope}

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: Json
    ) -> Json:
        who = {"trainer": self.name, "incarnation": self.name}
        writer.write(request("POST", path, {**who, **body}, self.master.token))
        return await answer_of(reader)


def request(method: str, path: str, body: Json, token: str) -> bytes:
    """Encodes an HTTP request."""
    raw = orjson.dumps(body)
    head = f"{method} {path} HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw


async def answer_of(reader: asyncio.StreamReader) -> Json:
    """Reads a response; returns its body. Raises as `raw_answer_of`."""
    answer: Json = orjson.loads(await raw_answer_of(reader))
    return answer


async def raw_answer_of(reader: asyncio.StreamReader) -> bytes:
    """Reads a response; returns its body as it came.

    Raises:
        RuntimeError: The master refused.
    """
    async with asyncio.timeout(_ANSWER_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        raw = await reader.readexactly(length)
    if b" 200 " not in head[:20]:
        raise RuntimeError(f"the master refused: {raw.decode()}")
    return raw


async def _load(
    master: MasterProcess, at_once: int, seconds: float, tasks_per_s: float = 0.0
) -> Json:
    every_s = at_once * TRAINERS / tasks_per_s if tasks_per_s else 0.0
    reader, writer = await asyncio.open_connection("127.0.0.1", master.port)
    shape = {"records": _RECORDS, "task_records": 100, "shuffle_seed": 1, "kind": "training"}
    writer.write(request("PUT", "/v1/datasets/train", shape, master.token))
    await answer_of(reader)
    writer.close()
    kind = f"{at_once}-{tasks_per_s:.0f}"
    trainers = [_Trainer(f"t-{kind}-{i}", master, i / TRAINERS) for i in range(TRAINERS)]
    begun_s = perf_counter()
    await asyncio.gather(*(trainer.work(at_once, seconds, every_s) for trainer in trainers))
    took_s = perf_counter() - begun_s
    times = [time for trainer in trainers for time in trainer.times_ms]
    tasks = sum(trainer.tasks for trainer in trainers)
    return {
        "tasks": tasks,
        "tasks_per_s": tasks / took_s,
        "calls_per_s": len(times) / took_s,
        **latency_figures(times),
    }


def _cold_mb(tasks: int) -> float:
    program = [sys.executable, "-m", "bench.master", str(tasks)]
    done = subprocess.run(program, check=True, capture_output=True, timeout=600)
    return float(done.stdout)


def epoch(tasks: int) -> None:
    """Processes 10^9 records in `tasks` tasks, in shuffled order."""
    ledger = Ledger("bench")
    shape: Json = {"records": _RECORDS, "task_records": _RECORDS // tasks, "epochs": 1}
    shape |= {"shuffle_seed": 1, "kind": "training", "overlap": False}
    ledger.execute(Describe("train", shape))
    ledger.execute(Join("t", "t"))
    done: tuple[Acknowledgement, ...] = ()
    while not ledger.complete:
        answer = ledger.execute(Work("t", "t", done, want=1000))
        done = tuple(Acknowledgement(task["task"], task["attempt"]) for task in answer["tasks"])


if __name__ == "__main__":
    epoch(int(sys.argv[1]))
    sys.stdout.write(f"{peak_mb()}\n")
