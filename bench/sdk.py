"""Overhead of the SDK: the time per batch of a training loop with and without it.

A real master runs in its own process and journals each acknowledgement.
"""

import secrets
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any

import edl
import numpy as np
from edl.data.batches import describe
from edl.local import master, ports
from edl.local.processes import Event, Process
from edl.master.protocol import Lease
from edl.sources.leased_records import LeasedRecords

from bench.benchmark import Result, Setting, percentile
from e2e.measure.criteria import Criterion

OVERHEAD_US = 100.0
"""The required limit: SDK overhead per batch, with prefetching."""
BATCH = 32
BATCHES_A_ROUND = 50
_WIDTH = 256
"""A step multiplies matrices of this size: it takes some milliseconds without the GIL."""
_STARTED_S = 60.0
ORDER_PERCENT = 5.0
"""The required limit of the cost of the record order for a batch, as a share of the SDK's overhead."""
_ORDER_TURNS = 9


def run(setting: Setting) -> Result:
    """Iterates over the same arrays with and without the SDK."""
    batches = setting.rounds * BATCHES_A_ROUND
    setting.report_progress(f"sdk: {batches} batches with and without")
    chance = np.random.default_rng(0)
    images = chance.random((batches * BATCH, 64), np.float32)
    matrix = chance.random((_WIDTH, _WIDTH), np.float32)
    with _member() as member:
        data = edl.from_arrays("digits", images)
        loop = edl.batches(data, BATCH, task_records=8 * BATCH, member=member)
        elastic = _run_loop(loop, matrix)
    plain = _run_loop((images[i : i + BATCH].copy() for i in range(0, len(images), BATCH)), matrix)
    figures = {"elastic_batch_us": elastic.median_us, "plain_batch_us": plain.median_us}
    overhead_us = elastic.median_us - plain.median_us
    cpu_us = elastic.cpu_us - plain.cpu_us
    setting.report_progress(f"sdk: {batches} batches in order and permuted")
    costs = _order_costs(images)
    order_us = costs["permuted_us"] - costs["in_order_us"]
    return Result(
        (
            Criterion("sdk_overhead_per_batch_us", overhead_us, "us", OVERHEAD_US),
            Criterion("sdk_cpu_per_batch_us", cpu_us, "us", None),
            Criterion("record_order_per_batch_us", order_us, "us", None),
            Criterion("record_order_percent", 100 * order_us / overhead_us, "%", ORDER_PERCENT),
        ),
        {name: [value] * len(setting.sizes) for name, value in figures.items()},
        {"elastic": elastic.figures(), "plain": plain.figures(), "order": costs},
    )


def _order_costs(images: Any) -> dict[str, float]:
    """Measures how long the reader's thread takes for a batch, in order and permuted.

    Tasks are taken in a random order, as the master leases them; both ways in alternating turns.

    Returns:
        Medians over the turns, in microseconds of CPU a batch.
    """
    data, task = edl.from_arrays("digits", images), 8 * BATCH
    starts = np.random.default_rng(1).permutation(len(images) // task) * task
    times: dict[str, list[float]] = {"in_order_us": [], "permuted_us": []}
    for turn in range(_ORDER_TURNS):
        for name, seed in (("in_order_us", None), ("permuted_us", turn)):
            shape = describe(data, BATCH, epochs=1, shuffle_seed=seed, task_records=task)
            records = LeasedRecords(data.source, shape)
            begun_s = thread_time()
            for start in starts.tolist():
                lease = Lease("digits", 1, "training", "digits", 0, start, start + task, None, 9.0)
                for first in range(start, start + task, BATCH):
                    records.batch([records.read(lease, first, first + BATCH)])
            seconds = thread_time() - begun_s
            times[name].append(seconds * 1e6 / (len(starts) * task // BATCH))
    return {name: median(values) for name, values in times.items()}


@dataclass(frozen=True)
class LoopTimes:
    """The measurements of a loop over all batches."""

    waits_us: list[float]
    """The wait for each batch: from the end of a step to the start of the next."""
    cpu_us: float
    """CPU time of the process per batch, including steps and threads."""

    @property
    def median_us(self) -> float:
        """The median wait."""
        return median(self.waits_us)

    def figures(self) -> dict[str, float]:
        """Statistics for the report."""
        count = len(self.waits_us)
        return {
            "batches": count,
            "median_us": self.median_us,
            "mean_us": sum(self.waits_us) / count,
            "p99_us": percentile(self.waits_us, 99),
            "cpu_us": self.cpu_us,
        }


def _run_loop(batches: Iterable[Any], matrix: Any) -> LoopTimes:
    """Runs a step per batch; the wait for the first, which needs the master, is left out."""
    waits: list[float] = []
    ended_s, begun_cpu_s = None, 0.0
    for _ in batches:
        if ended_s is None:
            begun_cpu_s = process_time()
        else:
            waits.append((perf_counter() - ended_s) * 1e6)
        np.matmul(matrix, matrix)
        ended_s = perf_counter()
    return LoopTimes(waits, (process_time() - begun_cpu_s) * 1e6 / len(waits))


@contextmanager
def _member() -> Iterator[edl.Session]:
    """Starts a real master; yields a trainer's session with it."""
    token, (port,) = secrets.token_hex(16), ports.free_ports(1)
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
        home, news = Path(folder), Queue[Event]()
        environment = {"EDL_JOB": "bench", "EDL_TOKEN": token}
        command = master.command(str(home / "journal"), port)
        process = Process(master.NAME, command, environment, home / "log", news)
        url = f"http://127.0.0.1:{port}"
        member = edl.Session(edl.Settings(url, token, "trainer-0", patience_s=_STARTED_S))
        try:
            yield member
        finally:
            member.leave()
            process.remove()
            if not process.wait(_STARTED_S):
                process.kill()
