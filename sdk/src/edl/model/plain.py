"""The adapter of models in plain numpy; also the pattern for other frameworks.

`model()` returns an object with

- `parameters`: float32 arrays by name, which training changes in place;
- `forward(inputs)`: the outputs;
- `gradients(slope)`: gradients by name for the newest `forward`, of the slope of the loss with
  regard to its outputs.

`loss(outputs, labels)` returns the mean loss and that slope; `optimizer(parameters)` a dict such as
`{"kind": "sgd", "learning_rate": 0.1}`, of the kinds that `edl.model.descent` has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edl.errors import CheckpointError
from edl.model.adapter import sow
from edl.model.calls import FEWER, Calls
from edl.model.data import count
from edl.model.descent import Descent
from edl.model.errors import ModelError
from edl.model.functions import SIGNATURES
from edl.model.restoring import MODEL, PLAIN, differences, refuse
from edl.servers.worker import Gradients, Table
from edl.sync.replica import Micro, State

Arrays = dict[str, Any]
Lookup = Callable[[str, Any], Any]
_SLOTS = "optimizer/"


def replica(made: Any, calls: Calls) -> PlainReplica:
    """As in `edl.model.protocols.Home`."""
    return PlainReplica(made, calls)


def worker(made: Any, calls: Calls, seed: int) -> PlainWorker:
    """As in `edl.model.protocols.Home`."""
    del seed  # it has no tables
    return PlainWorker(made, calls)


class Plain:
    """What both have: a model, and the user's functions."""

    def __init__(self, made: Any, calls: Calls) -> None:
        self._calls, self._made = calls, made
        self._own: Arrays = made.parameters
        for name, array in self._own.items():
            if getattr(array, "dtype", None) != np.float32:
                raise ModelError(
                    f"model() of {calls.model.path}: parameter {name!r} is "
                    f"{getattr(array, 'dtype', type(array).__name__)}: it must be a float32 array"
                )
        self._metrics = calls.metrics()

    def evaluate(self, records: Any, lookup: Lookup | None = None) -> dict[str, float]:
        """As in `Adapter`."""
        del lookup
        self._calls.at("an evaluation", records)
        outputs, labels = self._outputs(records)
        found = {"loss": self._loss(outputs, labels)[0]}
        for name, metric in self._metrics.items():
            found[name] = self._calls.measured(name, metric, outputs, labels)
        return found

    def predict(self, records: Any, lookup: Lookup | None = None) -> Arrays:
        """As in `Adapter`."""
        del lookup
        self._calls.at("a prediction", records)
        return self._calls.rows(self._calls.predicted(self._outputs(records)[0]), count(records))

    def export(self, folder: Path, lookup: Lookup | None = None) -> None:
        """As in `Adapter`."""
        del lookup
        self._calls.at("the export")
        if self._calls.model.has("export"):
            self._calls.user("export", self._made, folder)
        else:
            np.savez(folder / PLAIN, **self._own)

    def parameters(self) -> Arrays:
        """As in `Adapter`."""
        return {name: array.copy() for name, array in self._own.items()}

    def take(self, arrays: Mapping[str, Any], origin: str) -> None:
        """As in `Adapter`."""
        what = differences(_shapes(self._own), _shapes(arrays))
        if what:
            raise refuse(origin, what)
        for name, array in self._own.items():
            array[...] = arrays[name]

    def _outputs(self, records: Any) -> tuple[Any, Any]:
        inputs, labels = self._calls.feed(records)
        return self._calls.run("forward(inputs)", self._made.forward, inputs), labels

    def _loss(self, outputs: Any, labels: Any) -> tuple[float, Any]:
        found = self._calls.user("loss", outputs, labels)
        if not isinstance(found, tuple) or len(found) != 2:  # noqa: PLR2004 - a pair
            raise ModelError(
                f"{SIGNATURES['loss']} of {self._calls.model.path} must return a pair for a model in "
                "plain numpy: the mean loss, and its slope with regard to the outputs"
            )
        return self._calls.number(SIGNATURES["loss"], found[0]), found[1]

    def _slopes(self, records: Any) -> tuple[float, Arrays]:
        """The mean loss of a batch and its gradient."""
        outputs, labels = self._outputs(records)
        loss, slope = self._loss(outputs, labels)
        found = self._calls.run("gradients(slope)", self._made.gradients, slope)
        for name, array in found.items():
            if name not in self._own or np.shape(array) != self._own[name].shape:
                raise ModelError(
                    f"gradients(slope) of {self._calls.model.path} returned {name!r} of shape "
                    f"{list(np.shape(array))}: it must return arrays shaped like the parameters"
                )
        return loss, found


class PlainReplica(Plain):
    """A `Replica`."""

    def __init__(self, made: Any, calls: Calls) -> None:
        super().__init__(made, calls)
        self._descent = Descent(calls.user("optimizer", self._own), self._own, calls.model.path)
        self._gradient = {name: np.zeros_like(array) for name, array in self._own.items()}
        self.size = sum(array.size for array in self._own.values())

    def backward(self, records: Any, weight: float, micro: Micro) -> dict[str, float]:
        """As in `Replica`."""
        self._calls.at(f"step {micro.step + 1}, micro-batch {micro.index + 1}", records)
        sow(micro.seed)
        loss, found = self._slopes(records)
        for name, array in found.items():
            self._gradient[name] += weight * array
        return {"loss": loss}

    def read_gradient(self, out: np.ndarray) -> None:
        """As in `Replica`."""
        np.concatenate([one.ravel() for one in self._gradient.values()], out=out)

    def write_gradient(self, flat: np.ndarray) -> None:
        """As in `Replica`."""
        place = 0
        for one in self._gradient.values():
            one[...] = flat[place : place + one.size].reshape(one.shape)
            place += one.size

    def step(self, scale: float) -> None:
        """As in `Replica`."""
        self._descent.step(self._gradient, scale)
        self.clear()

    def clear(self) -> None:
        """As in `Replica`."""
        for one in self._gradient.values():
            one.fill(0)

    def state(self) -> State:
        """As in `Replica`."""
        arrays = {MODEL + name: array for name, array in self._own.items()}
        arrays.update((_SLOTS + name, array) for name, array in self._descent.slots.items())
        return State(arrays, {"steps": self._descent.steps})

    def load(self, state: State) -> None:
        """As in `Replica`."""
        mine = self.state().arrays
        what = differences(_shapes(mine), _shapes(state.arrays))
        if what:
            raise refuse("the state", what)
        if "steps" not in state.extra:
            raise CheckpointError("the state is of another framework: it does not count steps")
        for name, array in mine.items():
            array[...] = state.arrays[name]
        self._descent.steps = int(state.extra["steps"])


class PlainWorker(Plain):
    """A `Worker` without tables."""

    def __init__(self, made: Any, calls: Calls) -> None:
        super().__init__(made, calls)
        self._optimizer = dict(calls.user("optimizer", self._own))
        self._batches = 0
        calls.less_memory = FEWER

    def initial(self) -> Arrays:
        """As in `Worker`."""
        return self.parameters()

    def tables(self) -> dict[str, Table]:
        """As in `Worker`."""
        return {}

    def optimizer(self) -> dict[str, Any]:
        """As in `Worker`."""
        return self._optimizer

    def load(self, dense: Mapping[str, Any]) -> None:
        """As in `Worker`."""
        self.take(dense, "what the servers hold")

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """As in `Worker`."""
        del lookup
        self._batches += 1
        self._calls.at(f"its batch {self._batches}", records)
        loss, found = self._slopes(records)
        return Gradients(found, {}, {"loss": loss})


def _shapes(arrays: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(np.shape(array)) for name, array in arrays.items()}
