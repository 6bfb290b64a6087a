"""Latency and throughput of parameter servers.

It starts two real server processes. `python -m bench.pserver URLS SECONDS` is a worker that pushes
small gradients as fast as it gets responses; several workers generate the load.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import edl
import numpy as np
from edl.local.ports import free_ports
from edl.servers import Gradients, Lookup, PserverClient, Rules, Table
from edl.servers.model_spec import ModelSpec

from bench.benchmark import Result, Setting, Times
from bench.startup import STARTED_S, accepts
from e2e.measure.criteria import Criterion

Json = dict[str, Any]
SERVERS = 2
WORKERS = (1, 4, 8)
NUMBERS, ROWS, DIM, IDS = 1_000_000, 10_000, 16, 1_000_000
SMALL = 100
_PATIENCE_S = 30.0
_SECONDS_A_ROUND = 0.05
_TOKEN = "EDL_TOKEN"  # noqa: S105 - a variable's name
_RULES = Rules(None, modulate=False, checkpoint_steps=0, checkpoint_seconds=0.0, checkpoint_keep=1)


class NoopWorker:
    """A worker that defines arrays and tables for the servers, but computes nothing."""

    def __init__(self, numbers: int) -> None:
        self._numbers = numbers

    def initial(self) -> Json:
        """Returns one array."""
        return {"w": np.zeros(self._numbers, np.float32)}

    def tables(self) -> dict[str, Table]:
        """Returns one embedding table."""
        return {"rows": Table(DIM)}

    def optimizer(self) -> Json:
        """Returns the most expensive optimizer."""
        return {"kind": "adam", "learning_rate": 0.001}

    def load(self, dense: Mapping[str, Any]) -> None:
        """Nothing is computed."""

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """Nothing is computed."""
        del records, lookup
        return Gradients({}, {}, {})


def run(setting: Setting) -> Result:
    """Measures large pushes of one worker, then concurrent small ones of several."""
    setting.report_progress(f"pserver: {NUMBERS} numbers and {ROWS} rows at {SERVERS} servers")
    with served(NUMBERS) as (urls, token, _):
        large = _large(urls, token, setting.rounds)
    calls: dict[int, float] = {}
    seconds = max(0.2, setting.rounds * _SECONDS_A_ROUND)
    with served(SMALL) as (urls, token, _):
        for workers in WORKERS:
            setting.report_progress(f"pserver: {workers} workers, {seconds:.1f} s")
            calls[workers] = _load(urls, token, workers, seconds)
    criteria = (
        Criterion("pserver_push_and_pull_million_ms", large["push_and_pull"].median, "ms"),
        Criterion("pserver_push_rows_ms", large["push_rows"].median, "ms"),
        Criterion("pserver_lookup_rows_ms", large["lookup_rows"].median, "ms"),
        *(
            Criterion(
                f"pserver_pushes_per_second_{workers}_workers", pushes_per_s, "/s", at_least=True
            )
            for workers, pushes_per_s in calls.items()
        ),
    )
    raw: Json = {name: times.figures() for name, times in large.items()}
    raw["pushes_per_second"] = {
        str(workers): pushes_per_s for workers, pushes_per_s in calls.items()
    }
    growth = {"push_and_pull_ms": [large["push_and_pull"].median] * len(setting.sizes)}
    return Result(criteria, growth, raw)


def _large(urls: tuple[str, ...], token: str, rounds: int) -> dict[str, Times]:
    chance = np.random.default_rng(0)
    dense = {"w": chance.random(NUMBERS, np.float32)}
    ids = np.unique(chance.integers(0, IDS, ROWS))
    rows = chance.random((len(ids), DIM), np.float32)
    with connected(urls, token, NUMBERS) as client:

        def push(gradients: Gradients, *, want: bool) -> None:
            client.push(gradients, client.next_number(), 1, want=want)

        acts: dict[str, Callable[[], object]] = {
            "push_and_pull": lambda: push(Gradients(dense, {}, {}), want=True),
            "push_rows": lambda: push(Gradients({}, {"rows": (ids, rows)}, {}), want=False),
            "lookup_rows": lambda: client.lookup("rows", ids),
        }
        times = {name: Times() for name in acts}
        for name, act in acts.items():
            act()
            for _ in range(rounds):
                times[name].run(act)
    return times


def _load(urls: tuple[str, ...], token: str, workers: int, seconds: float) -> float:
    """Pushes per second of all workers; each push goes to all servers."""
    program = [sys.executable, "-m", "bench.pserver", ",".join(urls), str(seconds)]
    running = [
        subprocess.Popen(
            program, env={**os.environ, _TOKEN: token}, stdout=subprocess.PIPE, text=True
        )
        for _ in range(workers)
    ]
    outputs = [process.communicate(timeout=seconds + 2 * STARTED_S)[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError("a worker of the benchmark failed: see above")
    return sum(float(text) for text in outputs)


def small(urls: tuple[str, ...], token: str, seconds: float) -> float:
    """Pushes per second of one worker."""
    gradients = Gradients({"w": np.ones(SMALL, np.float32)}, {}, {})
    with connected(urls, token, SMALL) as client:
        client.push(gradients, client.next_number(), 1)
        begun_s, pushes = perf_counter(), 0
        while perf_counter() - begun_s < seconds:
            client.push(gradients, client.next_number(), 1)
            pushes += 1
        return pushes / (perf_counter() - begun_s)


@contextmanager
def connected(urls: tuple[str, ...], token: str, numbers: int) -> Iterator[PserverClient]:
    """Connects a worker to the servers; it makes no calls to a master."""
    name = f"worker-{os.getpid()}"
    settings = edl.Settings(
        "http://127.0.0.1:9", token, name, "bench", patience_s=_PATIENCE_S, servers=urls
    )
    model = ModelSpec(NoopWorker(numbers), {}, _RULES)
    with contextlib.closing(PserverClient(edl.Session(settings), model)) as client:
        client.enter()
        client.pull()
        yield client


@contextmanager
def served(numbers: int) -> Iterator[tuple[tuple[str, ...], str, tuple[int, ...]]]:
    """Starts servers with `numbers` parameters; yields their addresses, the job's token and their process ids."""
    token = secrets.token_hex(16)
    running: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
        ports = free_ports(SERVERS)
        try:
            for index, port in enumerate(ports):
                running.append(_start(index, port, Path(folder), token))
            for port, process in zip(ports, running, strict=True):
                if not accepts(port, process):
                    raise RuntimeError("a parameter server does not start")
            urls = tuple(f"http://127.0.0.1:{port}" for port in ports)
            with connected(urls, token, numbers):
                pass
            yield urls, token, tuple(process.pid for process in running)
        finally:
            for process in running:
                process.send_signal(signal.SIGKILL)
                process.wait(STARTED_S)


def _start(index: int, port: int, folder: Path, token: str) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "pserver", "--index", str(index), "--of", str(SERVERS)]
    program += ["--listen", f"127.0.0.1:{port}", "--checkpoints", str(folder), "--job", "bench"]
    with (folder / f"log-{index}").open("ab") as log:
        return subprocess.Popen(program, env={**os.environ, _TOKEN: token}, stdout=log, stderr=log)


if __name__ == "__main__":
    addresses = tuple(sys.argv[1].split(","))
    sys.stdout.write(f"{small(addresses, os.environ[_TOKEN], float(sys.argv[2]))}\n")
