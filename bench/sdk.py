"""What the SDK costs a training loop: its time for a batch, beside the same loop without it.

A real master serves in a process of its own, and journals each acknowledgement, as it always does.
"""

import secrets
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from statistics import median
from time import perf_counter, process_time
from typing import Any

import edl
import numpy as np
from edl.local import master, ports
from edl.local.processes import News, Process

from bench.benchmark import Result, Setting
from e2e.measure.bars import Bar

OVERHEAD_US = 100.0
"""The issue's bar: SDK overhead for a batch, with prefetch."""
BATCH = 32
BATCHES_A_ROUND = 50
_WIDTH = 256
"""A step multiplies matrices of this size: some milliseconds without Python's lock, as steps do."""
_STARTED_S = 60.0


def run(setting: Setting) -> Result:
    """Loops over the same arrays with and without the SDK."""
    batches = setting.rounds * BATCHES_A_ROUND
    setting.tell(f"sdk: {batches} batches with and without")
    chance = np.random.default_rng(0)
    images = chance.random((batches * BATCH, 64), np.float32)
    matrix = chance.random((_WIDTH, _WIDTH), np.float32)
    with _member() as member:
        data = edl.from_arrays("digits", images)
        loop = edl.batches(data, BATCH, task_records=8 * BATCH, member=member)
        elastic = _looped(loop, matrix)
    plain = _looped((images[i : i + BATCH].copy() for i in range(0, len(images), BATCH)), matrix)
    figures = {"elastic_batch_us": elastic.median_us, "plain_batch_us": plain.median_us}
    overhead_us = elastic.median_us - plain.median_us
    cpu_us = elastic.cpu_us - plain.cpu_us
    return Result(
        (
            Bar("sdk_overhead_per_batch_us", overhead_us, "us", OVERHEAD_US),
            Bar("sdk_cpu_per_batch_us", cpu_us, "us", None),
        ),
        {name: [value] * len(setting.sizes) for name, value in figures.items()},
        {"elastic": elastic.figures(), "plain": plain.figures()},
    )


@dataclass(frozen=True)
class Looped:
    """A loop over all batches."""

    waits_us: list[float]
    """How long the program waited for each batch: from a step's end to the next one's begin."""
    cpu_us: float
    """Of the whole process for each batch, steps and threads included."""

    @property
    def median_us(self) -> float:
        """Half of the waits were shorter."""
        return median(self.waits_us)

    def figures(self) -> dict[str, float]:
        """For the report."""
        count = len(self.waits_us)
        return {
            "batches": count,
            "median_us": self.median_us,
            "mean_us": sum(self.waits_us) / count,
            "p99_us": sorted(self.waits_us)[count * 99 // 100],
            "cpu_us": self.cpu_us,
        }


def _looped(batches: Iterable[Any], matrix: Any) -> Looped:
    """Steps through all batches; the first, which waits for the master, is left out."""
    waits: list[float] = []
    ended_s, begun_cpu_s = None, 0.0
    for _ in batches:
        if ended_s is None:
            begun_cpu_s = process_time()
        else:
            waits.append((perf_counter() - ended_s) * 1e6)
        np.matmul(matrix, matrix)
        ended_s = perf_counter()
    return Looped(waits, (process_time() - begun_cpu_s) * 1e6 / len(waits))


@contextmanager
def _member() -> Iterator[edl.Session]:
    """A trainer's session with a real master."""
    token, (port,) = secrets.token_hex(16), ports.free_ports(1)
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
        home, news = Path(folder), Queue[News]()
        told = {"EDL_JOB": "bench", "EDL_TOKEN": token}
        command = master.command(str(home / "journal"), port)
        process = Process(master.NAME, command, told, home / "log", news)
        url = f"http://127.0.0.1:{port}"
        member = edl.Session(edl.Settings(url, token, "trainer-0", patience_s=_STARTED_S))
        try:
            yield member
        finally:
            member.leave()
            process.remove()
            if not process.wait(_STARTED_S):
                process.kill()
