"""A trainer of `bench.growth`: a model of a gigabyte that costs little to compute.

Arguments: the file for its lines, as those of `tests.sdk.sync.program`, and options as JSON:
`megabytes` of its state, `in_parts`, and how many `steps` it trains at most.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import edl
import numpy as np
from edl import clock
from edl.overriding import override
from edl.sync import Micro, State, SyncStep
from edl.sync.parts import ArrayGroup, PartedReplica
from edl.sync.replica import Replica

from tests.sdk.sync.notes import notes, place_of

_BLOCK = 1 << 18
_NAMES = ("parameters", "mean", "squares")


class Large(Replica):
    """A model with two accumulators for each parameter, as Adam has."""

    def __init__(self, size: int) -> None:
        self.size = size
        # as frameworks do: with pages in memory, which `np.zeros` leaves for the first write
        self._arrays = {name: np.full(size, 0, np.float32) for name in _NAMES}
        self._gradient = np.full(size, 0, np.float32)

    @override
    def backward(self, records: Any, weight: float, micro: Micro) -> Mapping[str, float]:
        del micro
        self._gradient += np.float32(weight * float(records.mean()))
        return {"loss": 1.0}

    @override
    def read_gradient(self, out: Any) -> None:
        out[:] = self._gradient

    @override
    def write_gradient(self, flat: Any) -> None:
        self._gradient[:] = flat

    @override
    def step(self, scale: float) -> None:
        # in blocks, so that it needs no more memory
        for start in range(0, self.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            slope = self._gradient[block]
            parameters, mean, squares = (self._arrays[name][block] for name in _NAMES)
            mean += slope
            squares += mean
            parameters -= np.float32(1e-6 * scale) * squares
        self.clear()

    @override
    def clear(self) -> None:
        self._gradient.fill(0)

    @override
    def state(self) -> State:
        return State(dict(self._arrays), {})

    @override
    def load(self, state: State) -> None:
        for name, array in self._arrays.items():
            array[:] = state.arrays[name]


class LargeInParts(Large, PartedReplica):
    """The same, which newcomers get while the others train; see `PartedReplica`."""

    @override
    def groups(self) -> list[ArrayGroup]:
        return [ArrayGroup(_NAMES, self.size, 4 * len(_NAMES))]

    @override
    def read_slice(self, name: str, start: int, stop: int) -> Any:
        return self._arrays[name][start:stop].copy()

    @override
    def write_slice(self, name: str, start: int, elements: Any) -> None:
        self._arrays[name][start : start + len(elements)] = elements

    @override
    def rest(self) -> State:
        return State({}, {})

    @override
    def load_rest(self, rest: State) -> None:
        pass


def main(path: str, text: str) -> None:
    """Trains until it is killed, or to the end."""
    options = json.loads(text)
    size = options["megabytes"] * 1_000_000 // (4 * len(_NAMES))
    replica = LargeInParts(size) if options["in_parts"] else Large(size)
    data = edl.from_arrays("numbers", np.ones(options["steps"] * 8, np.float32))
    with notes(path) as tell:

        def note(step: SyncStep) -> None:
            sums = float(replica.state().arrays["parameters"][::1009].sum())
            tell({**place_of(step), "peak_mb": peak_mb(), "sum": sums})

        tell({"ready": True})
        tell({"arrived_s": clock.monotonic_s()})
        edl.sync.train(replica, data, 8, micro_batches=8, on_step=note)


def peak_mb() -> float:
    """Returns the peak of this program's memory since `bench.growth` has reset it."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
