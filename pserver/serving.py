"""What a server answers while it serves one generation: parameters out, gradients in."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from pserver import contents, memory
from pserver.checkpoint import Name
from pserver.errors import BusyError, FullError, NonFiniteError, RefusedError
from pserver.frames import Array, Body, Json
from pserver.protocol import Lookup, Page, Pull, Push
from pserver.saving import MOST_PINS, Pin, Saving
from pserver.shard import Outcome, Shard, numbers
from pserver.shard import Push as Gradients
from pserver.tally import Tally

Answer = tuple[Json, Mapping[str, Body]]
_UNKNOWN, _MALFORMED, _FULL = 404, 422, 507


class Taken(NamedTuple):
    """A checkpoint about to be written."""

    meta: Json
    arrays: Mapping[str, Body]
    close: Callable[[], None]
    """Says that it was."""


class Serving:
    """Of one generation."""

    def __init__(self, generation: int, shard: Shard, tally: Tally, now_s: float) -> None:
        self.generation, self.shard = generation, shard
        self.saving = Saving(shard.version, now_s)
        self._tally = tally
        self._pins: dict[int, Pin] = {}

    def pull(self, body: Pull) -> Answer:
        """Dense parameters, if they are newer than what the caller has; or those of a pin."""
        shard = self.shard
        version, values = shard.version, shard.vector.values
        if body.pin is not None:
            pin = self._pin(body.pin)
            version, values = pin.version, pin.dense
        newer = version > body.version
        return self._counts(version), {"dense": values} if newer else {}

    def lookup(self, body: Lookup, arrays: Mapping[str, Array]) -> Answer:
        """Rows of a table."""
        ids = _array(arrays, "ids", np.int64)
        table = self.shard.table(body.table)
        self._tally.looked_up += len(ids)
        seen = None if body.pin is None else self._pin(body.pin).tables[body.table]
        return self._counts(self.shard.version), {"rows": table.lookup(ids, seen)}

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
        )
        try:
            outcome, stale = self._apply(gradients)
        except NonFiniteError as error:
            self._tally.refused(body.trainer, body.number, error.parameter)
            raise
        except FullError as error:
            raise RefusedError(_FULL, _full(error)) from error
        self._tally.pushed(outcome, stale)
        meta = {**self._counts(self.shard.version), "outcome": outcome.value, "staleness": stale}
        wanted = body.want or outcome is Outcome.STALE
        return meta, {"dense": self.shard.vector.values} if wanted else {}

    def page(self, body: Page) -> Answer:
        """Some of all rows of a table."""
        table = self.shard.table(body.table)
        ids, rows = table.page(body.after, body.most)
        after = body.after + len(ids)
        meta = {**self._counts(self.shard.version), "next": after if after < table.size else None}
        return meta, {"ids": ids, "rows": rows}

    def pin(self, number: int) -> int:
        """Keeps parameters as they are now; of too many the oldest goes.

        Returns:
            Their version; the one of before where the number is pinned already.
        """
        if number not in self._pins:
            if len(self._pins) >= MOST_PINS:
                self.unpin(next(iter(self._pins)))
            shard = self.shard
            self._pins[number] = Pin(
                shard.views.open(),
                shard.version,
                shard.vector.values,
                {name: table.seen() for name, table in shard.tables.items()},
            )
        return self._pins[number].version

    def unpin(self, number: int) -> None:
        """It is not needed any more; unpinning it again changes nothing."""
        pin = self._pins.pop(number, None)
        if pin is not None:
            self.shard.views.close(pin.view)

    def take(self, name: Name, job: str, index: int) -> Taken:
        """Everything as it is now, to be written while the server goes on."""
        about = {"job": job, "index": index, **name._asdict()}
        shard = self.shard
        view = shard.views.open()
        meta, arrays = contents.taken(shard, about)
        return Taken(meta, arrays, lambda: shard.views.close(view))

    def told(self) -> Json:
        """For the status."""
        shard = self.shard
        tables = {
            name: {"dim": table.shape.dim, "rows": table.size, "bytes": table.nbytes}
            for name, table in shard.tables.items()
        }
        return {
            "model": numbers(shard.model),
            "optimizer": shard.model.optimizer,
            "dense": {"numbers": len(shard.vector.values), "bytes": shard.vector.nbytes},
            "tables": tables,
            "memory": memory.describe(shard.memory, shard.views),
            "pins": {str(number): pin.version for number, pin in self._pins.items()},
            "processes": len(shard.applied),
        }

    def _apply(self, gradients: Gradients) -> tuple[Outcome, int]:
        """Pins give way where there is no room left; checkpoints do not take long."""
        while True:
            try:
                return self.shard.push(gradients)
            except BusyError:
                if not self._pins:
                    raise
                self.unpin(next(iter(self._pins)))

    def _pin(self, number: int) -> Pin:
        found = self._pins.get(number)
        if found is None:
            text = f"version {number} is not pinned (any more): evaluate a newer one"
            raise RefusedError(_UNKNOWN, text, "pin")
        return found

    def _counts(self, version: int) -> Json:
        return {
            "generation": self.generation,
            "version": version,
            "records": self.shard.counts.records,
        }


def _array(
    arrays: Mapping[str, Array], name: str, dtype: type[np.generic], dimensions: int = 1
) -> Array:
    found = arrays.get(name)
    if found is None or found.dtype != dtype or found.ndim != dimensions:
        text = f"{name}: an array of {np.dtype(dtype).name} of {dimensions} dimensions is missing"
        raise RefusedError(_MALFORMED, text, name)
    return found


def _full(error: FullError) -> str:
    return (
        f"this parameter server is full, {error.needed_bytes} bytes are missing: give it more "
        "memory (--max-bytes), or start the job with more servers"
    )
