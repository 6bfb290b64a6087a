"""Parameter servers: how long a push and a pull take, and how many a second they answer.

Two real servers in processes of their own. `python -m bench.pserver URLS SECONDS` is one worker that
pushes small gradients as fast as they are answered; several of them are a load.
"""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import edl
import numpy as np
from edl.local.ports import free_ports
from edl.servers import Gradients, Lookup, Rules, Servers, Table
from edl.servers.model import Model

from bench.benchmark import Result, Setting, Times
from e2e.measure.bars import Bar

Json = dict[str, Any]
SERVERS = 2
WORKERS = (1, 4, 8)
NUMBERS, ROWS, DIM, IDS = 1_000_000, 10_000, 16, 1_000_000
_SMALL = 100
_STARTED_S, _LOOK_S, _PATIENCE_S = 30.0, 0.01, 30.0
_SECONDS_A_ROUND = 0.05
_TOKEN = "EDL_TOKEN"  # noqa: S105 - a variable's name
_RULES = Rules(None, modulate=False, checkpoint_steps=0, checkpoint_seconds=0.0, checkpoint_keep=1)


class Shape:
    """A worker as far as servers need to know it; it computes nothing."""

    def __init__(self, numbers: int) -> None:
        self._numbers = numbers

    def initial(self) -> Json:
        """One array."""
        return {"w": np.zeros(self._numbers, np.float32)}

    def tables(self) -> dict[str, Table]:
        """One embedding."""
        return {"rows": Table(DIM)}

    def optimizer(self) -> Json:
        """The one that costs most."""
        return {"kind": "adam", "learning_rate": 0.001}

    def load(self, dense: Mapping[str, Any]) -> None:
        """Nothing is computed."""

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """Nothing is computed."""
        del records, lookup
        return Gradients({}, {}, {})


def run(setting: Setting) -> Result:
    """Large pushes by one worker, then small ones by several at once."""
    setting.tell(f"pserver: {NUMBERS} numbers and {ROWS} rows at {SERVERS} servers")
    with _served(NUMBERS) as (urls, token):
        large = _large(urls, token, setting.rounds)
    calls: dict[int, float] = {}
    seconds = max(0.2, setting.rounds * _SECONDS_A_ROUND)
    with _served(_SMALL) as (urls, token):
        for workers in WORKERS:
            setting.tell(f"pserver: {workers} workers, {seconds:.1f} s")
            calls[workers] = _load(urls, token, workers, seconds)
    bars = (
        Bar("pserver_push_and_pull_million_ms", large["push_and_pull"].median, "ms"),
        Bar("pserver_push_rows_ms", large["push_rows"].median, "ms"),
        Bar("pserver_lookup_rows_ms", large["lookup_rows"].median, "ms"),
        *(
            Bar(f"pserver_pushes_per_second_{workers}_workers", found, "/s", at_least=True)
            for workers, found in calls.items()
        ),
    )
    raw: Json = {name: times.figures() for name, times in large.items()}
    raw["pushes_per_second"] = {str(workers): found for workers, found in calls.items()}
    growth = {"push_and_pull_ms": [large["push_and_pull"].median] * len(setting.sizes)}
    return Result(bars, growth, raw)


def _large(urls: tuple[str, ...], token: str, rounds: int) -> dict[str, Times]:
    chance = np.random.default_rng(0)
    dense = {"w": chance.random(NUMBERS, np.float32)}
    ids = np.unique(chance.integers(0, IDS, ROWS))
    rows = chance.random((len(ids), DIM), np.float32)
    with _connected(urls, token, NUMBERS) as found:

        def push(gradients: Gradients, *, want: bool) -> None:
            found.push(gradients, found.next_number(), 1, want=want)

        acts: dict[str, Callable[[], object]] = {
            "push_and_pull": lambda: push(Gradients(dense, {}, {}), want=True),
            "push_rows": lambda: push(Gradients({}, {"rows": (ids, rows)}, {}), want=False),
            "lookup_rows": lambda: found.lookup("rows", ids),
        }
        times = {name: Times() for name in acts}
        for name, act in acts.items():
            act()
            for _ in range(rounds):
                times[name].run(act)
    return times


def _load(urls: tuple[str, ...], token: str, workers: int, seconds: float) -> float:
    """Pushes of all workers in a second; each goes to all servers."""
    program = [sys.executable, "-m", "bench.pserver", ",".join(urls), str(seconds)]
    running = [
        subprocess.Popen(
            program, env={**os.environ, _TOKEN: token}, stdout=subprocess.PIPE, text=True
        )
        for _ in range(workers)
    ]
    said = [one.communicate(timeout=seconds + 2 * _STARTED_S)[0] for one in running]
    if any(one.returncode for one in running):
        raise RuntimeError("a worker of the benchmark failed: see above")
    return sum(float(text) for text in said)


def small(urls: tuple[str, ...], token: str, seconds: float) -> float:
    """Pushes that one worker makes in a second."""
    gradients = Gradients({"w": np.ones(_SMALL, np.float32)}, {}, {})
    with _connected(urls, token, _SMALL) as found:
        found.push(gradients, found.next_number(), 1)
        begun_s, pushes = perf_counter(), 0
        while perf_counter() - begun_s < seconds:
            found.push(gradients, found.next_number(), 1)
            pushes += 1
        return pushes / (perf_counter() - begun_s)


@contextmanager
def _connected(urls: tuple[str, ...], token: str, numbers: int) -> Iterator[Servers]:
    """A worker's connection; no master is asked for anything."""
    name = f"worker-{os.getpid()}"
    told = edl.Settings(
        "http://127.0.0.1:9", token, name, "bench", patience_s=_PATIENCE_S, servers=urls
    )
    model = Model(Shape(numbers), {}, _RULES._asdict())
    with contextlib.closing(Servers(edl.Session(told), model)) as found:
        found.enter()
        found.pull()
        yield found


@contextmanager
def _served(numbers: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Servers that hold so many numbers: their addresses and the job's token."""
    token = secrets.token_hex(16)
    running: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
        ports = free_ports(SERVERS)
        try:
            for index, port in enumerate(ports):
                running.append(_start(index, port, Path(folder), token))
            for port, process in zip(ports, running, strict=True):
                _wait(port, process)
            urls = tuple(f"http://127.0.0.1:{port}" for port in ports)
            with _connected(urls, token, numbers):
                pass
            yield urls, token
        finally:
            for process in running:
                process.send_signal(signal.SIGKILL)
                process.wait(_STARTED_S)


def _start(index: int, port: int, folder: Path, token: str) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "pserver", "--index", str(index), "--of", str(SERVERS)]
    program += ["--listen", f"127.0.0.1:{port}", "--checkpoints", str(folder), "--job", "bench"]
    with (folder / f"log-{index}").open("ab") as log:
        return subprocess.Popen(program, env={**os.environ, _TOKEN: token}, stdout=log, stderr=log)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    until_s = perf_counter() + _STARTED_S
    while perf_counter() < until_s and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), _STARTED_S).close()
        except ConnectionRefusedError:
            sleep(_LOOK_S)
        else:
            return
    raise RuntimeError("a parameter server does not start")


if __name__ == "__main__":
    addresses = tuple(sys.argv[1].split(","))
    sys.stdout.write(f"{small(addresses, os.environ[_TOKEN], float(sys.argv[2]))}\n")
