"""How long a push waits for a table that grows to twice its rows, and for the start of a checkpoint.

One table in this process, times of its own thread: other work on the machine does not count.
"""

from collections.abc import Iterator
from time import thread_time

import numpy as np
from edl_protocol.pserver import Table

from bench.benchmark import Result, Setting, Times
from e2e.measure.criteria import Criterion
from pserver.memory import Memory, Views
from pserver.optimizers import make
from pserver.table import EmbeddingTable, Ids

DIM, NEW_IDS, KNOWN_IDS = 4, 5_000, 5_000
_ROWS_A_ROUND = 170_000
"""With 60 rounds: from a little more than ten million rows to twice as many."""
_FILLED_AT_ONCE = 1 << 16
_SNAPSHOT_EVERY = 100
LIMITS = {"rows_push_worst_ms": 50.0, "rows_snapshot_worst_ms": 50.0}


def run(setting: Setting) -> Result:
    """Measures pushes with half of their ids new, while the number of rows doubles."""
    rows = _ROWS_A_ROUND * setting.rounds
    setting.report_progress(f"rows: a table of {rows} rows grows to {2 * rows}")
    table = _filled(rows)
    times = {name: Times() for name in ("prepare", "update", "snapshot", "lookup")}
    gradient = np.ones((NEW_IDS + KNOWN_IDS, DIM), np.float32)
    for number, ids in enumerate(_pushes(rows)):
        with _Stopwatch(times["lookup"]):
            table.lookup(ids)
        with _Stopwatch(times["prepare"]):
            places = table.prepare(ids)
        with _Stopwatch(times["update"]):
            table.update(places, gradient[: len(ids)], 1.0)
        if number % _SNAPSHOT_EVERY == 0:
            with _Stopwatch(times["snapshot"]):
                table.snapshot()
    values = {
        "rows_push_worst_ms": times["prepare"].worst,
        "rows_push_median_ms": times["prepare"].median,
        "rows_update_median_ms": times["update"].median,
        "rows_lookup_worst_ms": times["lookup"].worst,
        "rows_snapshot_worst_ms": times["snapshot"].worst,
        "rows_bytes_a_row": table.nbytes / table.size,
    }
    criteria = tuple(
        Criterion(name, value, "B" if "bytes" in name else "ms", limit=LIMITS.get(name))
        for name, value in values.items()
    )
    growth = {"push_worst_ms": [times["prepare"].worst] * len(setting.sizes)}
    return Result(criteria, growth, {name: each.figures() for name, each in times.items()})


class _Stopwatch:
    """Records the processor time of this thread in a block."""

    def __init__(self, times: Times) -> None:
        self._times, self._begun_s = times, 0.0

    def __enter__(self) -> None:
        self._begun_s = thread_time()

    def __exit__(self, *_: object) -> None:
        self._times.values.append((thread_time() - self._begun_s) * 1000)


def _filled(rows: int) -> EmbeddingTable:
    optimizer = make({"kind": "sgd", "learning_rate": 0.1})
    table = EmbeddingTable(Table(dim=DIM, init=0.0), optimizer, Views(Memory()))
    for start in range(0, rows, _FILLED_AT_ONCE):
        ids = _spread(np.arange(start, min(rows, start + _FILLED_AT_ONCE)))
        table.restore(
            ids, np.zeros((len(ids), DIM), np.float32), np.zeros((len(ids), 0), np.float32)
        )
    return table


def _pushes(rows: int) -> Iterator[Ids]:
    """The ids of each push: half of them new, half known."""
    chance = np.random.default_rng(0)
    for start in range(rows, 2 * rows, NEW_IDS):
        known = np.unique(chance.integers(0, rows, KNOWN_IDS))
        fresh = np.arange(start, start + NEW_IDS)
        yield _spread(np.concatenate([known, fresh]))


def _spread(numbers: Ids) -> Ids:
    """Distinct ids all over their range."""
    return numbers * np.int64(0x9E3779B97F4A7C15 - (1 << 64))
