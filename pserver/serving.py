"""Pulls, lookups, pushes and pins of one served generation, and the server's counters."""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from edl_protocol.fields import Json
from edl_protocol.frames import Array, Body
from edl_protocol.pserver import Lookup, Page, Pull, Push

from pserver import memory, shard_codec
from pserver.checkpoint import CheckpointName, CheckpointSchedule
from pserver.errors import BusyError, NonFiniteError
from pserver.memory import Floats
from pserver.shard import PushedGradients as Gradients
from pserver.shard import PushOutcome, Shard, model_size
from pserver.table import TableView
from runtime.call_checks import RefusedError

_NEWEST = 20
Answer = tuple[Json, Mapping[str, Body]]
MAX_PINS = 2
"""Pinned versions at a time; another pin drops the oldest."""
_UNKNOWN, _MALFORMED = 404, 422


class ServerStats:
    """The counters of one server since its start, over all generations."""

    def __init__(self) -> None:
        self.pushes: Counter[PushOutcome] = Counter()
        self.stalest = 0
        """Highest staleness of an applied push, in versions."""
        self.staleness = 0
        """Sum of the staleness of all applied pushes."""
        self.clipped = 0
        """Number of applied pushes whose gradient was clipped by its norm."""
        self.looked_up = 0
        """Number of rows looked up."""
        self.non_finite = 0
        self._non_finite: deque[dict[str, Any]] = deque(maxlen=_NEWEST)

    def record_push(self, outcome: PushOutcome, stale: int, *, clipped: bool = False) -> None:
        """Counts an answered push."""
        self.pushes[outcome] += 1
        if outcome is PushOutcome.APPLIED:
            self.staleness += stale
            self.stalest = max(self.stalest, stale)
            self.clipped += clipped

    def record_refusal(self, trainer: str, step: int, parameter: str) -> None:
        """Counts a gradient with NaN or infinity."""
        self.non_finite += 1
        self._non_finite.append({"trainer": trainer, "step": step, "parameter": parameter})

    def to_json(self) -> dict[str, Any]:
        """Returns the counters as a section of the status."""
        applied = self.pushes[PushOutcome.APPLIED]
        return {
            "pushes": {outcome.value: self.pushes[outcome] for outcome in PushOutcome},
            "staleness": {
                "mean": self.staleness / applied if applied else 0.0,
                "most": self.stalest,
            },
            "clipped": self.clipped,
            "looked_up": self.looked_up,
            "non_finite": {"count": self.non_finite, "newest": list(self._non_finite)},
        }


class Pin(NamedTuple):
    """A version of the parameters that stays unchanged for an evaluation."""

    view: int
    version: int
    dense: Floats
    tables: dict[str, TableView]


class ShardSnapshot(NamedTuple):
    """A shard's contents, to be written as a checkpoint."""

    meta: Json
    arrays: Mapping[str, Body]
    close: Callable[[], None]
    """Closes the view that keeps the arrays unchanged; call it after writing."""


class ServedGeneration:
    """The generation that a server serves: its shard, pins and checkpoint schedule."""

    def __init__(self, generation: int, shard: Shard, stats: ServerStats, now_s: float) -> None:
        self.generation, self.shard = generation, shard
        self.schedule = CheckpointSchedule(shard.version, now_s)
        self._stats = stats
        self._pins: dict[int, Pin] = {}

    def pull(self, body: Pull) -> Answer:
        """Returns dense parameters if they are newer than the caller's, or those of a pinned version."""
        shard = self.shard
        version, values = shard.version, shard.vector.values
        if body.pin is not None:
            pin = self._pin(body.pin)
            version, values = pin.version, pin.dense
        newer = version > body.version
        return self._counts(version), {"dense": values} if newer else {}

    def lookup(self, body: Lookup, arrays: Mapping[str, Array]) -> Answer:
        """Returns rows of a table, current or of a pinned version."""
        ids = _array(arrays, "ids", np.int64)
        table = self.shard.table(body.table)
        self._stats.looked_up += len(ids)
        view = None if body.pin is None else self._pin(body.pin).tables[body.table]
        return self._counts(self.shard.version), {"rows": table.lookup(ids, view)}

    def push(self, body: Push, arrays: Mapping[str, Array]) -> Answer:
        """Applies gradients; see `Shard.push`."""
        gradients = Gradients(
            process=body.incarnation,
            number=body.number,
            version=body.version,
            records=body.records,
            dense=_array(arrays, "dense", np.float32) if "dense" in arrays else None,
            sparse={
                name: (
                    _array(arrays, f"ids.{place}", np.int64),
                    _array(arrays, f"rows.{place}", np.float32, dimensions=2),
                )
                for place, name in enumerate(body.tables)
            },
            norm=body.norm,
            remaining=body.remaining,
        )
        refused = self.shard.refused_rows
        try:
            outcome, stale = self._apply(gradients)
        except NonFiniteError as error:
            self._stats.record_refusal(body.trainer, body.number, error.parameter)
            raise
        clipped = self.shard.optimizer.clips(body.norm)
        self._stats.record_push(outcome, stale, clipped=clipped)
        refused = self.shard.refused_rows - refused
        meta = {
            **self._counts(self.shard.version),
            "outcome": outcome.value,
            "staleness": stale,
            "refused": refused,
        }
        with_dense = body.want or outcome is PushOutcome.STALE
        return meta, {"dense": self.shard.vector.values} if with_dense else {}

    def page(self, body: Page) -> Answer:
        """Returns one page of a table's rows."""
        table = self.shard.table(body.table)
        below = min(body.after or table.size, table.size)
        ids, rows = table.page(below, body.most)
        meta = {**self._counts(self.shard.version), "next": (below - len(ids)) or None}
        return meta, {"ids": ids, "rows": rows}

    def pin(self, number: int) -> int:
        """Pins the current parameters; drops the oldest pin if there are too many.

        Returns:
            The pinned version; if the number is pinned already, the version that it pins.
        """
        if number not in self._pins:
            if len(self._pins) >= MAX_PINS:
                self.unpin(next(iter(self._pins)))
            shard = self.shard
            self._pins[number] = Pin(
                shard.views.open(),
                shard.version,
                shard.vector.values,
                {name: table.view() for name, table in shard.tables.items()},
            )
        return self._pins[number].version

    def unpin(self, number: int) -> None:
        """Releases a pin; releasing it again has no effect."""
        pin = self._pins.pop(number, None)
        if pin is not None:
            self.shard.views.close(pin.view)

    def snapshot(self, name: CheckpointName, job: str, index: int) -> ShardSnapshot:
        """Opens a snapshot of the shard, to be written while the server continues to serve."""
        header = {"job": job, "index": index, **name._asdict()}
        shard = self.shard
        view = shard.views.open()
        meta, arrays = shard_codec.snapshot(shard, header)
        return ShardSnapshot(meta, arrays, lambda: shard.views.close(view))

    def to_json(self) -> Json:
        """Returns the serving section of the status."""
        shard = self.shard
        tables = {
            name: {
                "dim": table.shape.dim,
                "rows": table.size,
                "bytes": table.nbytes,
                **asdict(table.counts),
            }
            for name, table in shard.tables.items()
        }
        return {
            "model": model_size(shard.model),
            "optimizer": shard.model.optimizer,
            "rate_factor": shard.optimizer.rate_factor(shard.version),
            "dense": {"numbers": len(shard.vector.values), "bytes": shard.vector.nbytes},
            "tables": tables,
            "memory": memory.describe(shard.memory, shard.views),
            "pins": {str(number): pin.version for number, pin in self._pins.items()},
            "processes": len(shard.applied),
        }

    def _apply(self, gradients: Gradients) -> tuple[PushOutcome, int]:
        """Applies a push; drops pins, oldest first, if their views leave too little memory."""
        while True:
            try:
                return self.shard.push(gradients)
            except BusyError:
                if not self._pins:
                    raise
                self.unpin(next(iter(self._pins)))

    def _pin(self, number: int) -> Pin:
        pin = self._pins.get(number)
        if pin is None:
            text = f"version {number} is not pinned: evaluate a newer version"
            raise RefusedError(_UNKNOWN, text, "pin")
        return pin

    def _counts(self, version: int) -> Json:
        return {
            "generation": self.generation,
            "version": version,
            "records": self.shard.counts.records,
        }


def _array(
    arrays: Mapping[str, Array], name: str, dtype: type[np.generic], dimensions: int = 1
) -> Array:
    array = arrays.get(name)
    if array is None or array.dtype != dtype or array.ndim != dimensions:
        text = f"{name}: an array of {np.dtype(dtype).name} with {dimensions} dimensions is missing"
        raise RefusedError(_MALFORMED, text, name)
    return array
