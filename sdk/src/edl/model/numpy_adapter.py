"""The adapter for models in plain numpy, which also serves as an example for other frameworks.

`model()` returns an object with

- `parameters`: name -> float32 array; training changes the arrays in place;
- `forward(inputs)`: returns the outputs;
- `gradients(slope)`: returns parameter name -> gradient for the last call of `forward`; `slope` is the
  gradient of the loss with respect to the outputs.

`loss(outputs, labels)` returns the mean loss and the slope. `optimizer(parameters)` returns a dict
such as `{"kind": "sgd", "learning_rate": 0.1}`; `edl.model.numpy_optimizer` has the supported kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edl.errors import CheckpointError
from edl.model.data import count
from edl.model.errors import ModelError
from edl.model.functions import SIGNATURES
from edl.model.metrics import finish
from edl.model.numpy_optimizer import NumpyOptimizer
from edl.model.parameters import MODEL_PREFIX, NUMPY_FILE, first_difference, mismatch_error
from edl.model.protocols import Adapter
from edl.model.seeding import seed_everything
from edl.model.user_code import SMALLER_BATCH, UserCode
from edl.overriding import override
from edl.servers.worker import Gradients, Worker
from edl.sync.parts import ArrayGroup, PartedReplica
from edl.sync.replica import Micro, Replica, State
from edl_protocol.pserver import Table

Arrays = dict[str, Any]
Lookup = Callable[[str, Any], Any]
_SLOTS = "optimizer/"


def replica(user_model: Any, user_code: UserCode) -> NumpyReplica:
    """Returns a replica for the object returned by `model()`."""
    return NumpyReplica(user_model, user_code)


def worker(user_model: Any, user_code: UserCode, seed: int) -> NumpyWorker:
    """Returns a worker for the object returned by `model()`."""
    del seed  # only initial embedding rows need it, and there are no tables
    return NumpyWorker(user_model, user_code)


class NumpyModel(Adapter):
    """Base class of the replica and the worker: evaluation, prediction and export."""

    def __init__(self, user_model: Any, user_code: UserCode) -> None:
        self._user_code, self._user_model = user_code, user_model
        self._parameters: Arrays = user_model.parameters
        for name, array in self._parameters.items():
            if getattr(array, "dtype", None) != np.float32:
                raise ModelError(
                    f"model() of {user_code.model.path}: parameter {name!r} is of type "
                    f"{getattr(array, 'dtype', type(array).__name__)}: it must be a float32 array"
                )
        self._metrics = user_code.metrics()

    @override
    def evaluate(self, records: Any, lookup: Lookup | None = None) -> dict[str, float]:
        del lookup
        self._user_code.set_context("an evaluation", records)
        outputs, labels = self._outputs(records)
        loss = self._loss(outputs, labels)[0]
        return {"loss": loss, **self._user_code.metric_values(self._metrics, outputs, labels)}

    @override
    def finish(self, reported: Mapping[str, float]) -> dict[str, float]:
        return finish(reported, self._metrics)

    @override
    def predict(self, records: Any, lookup: Lookup | None = None) -> Arrays:
        del lookup
        self._user_code.set_context("a prediction", records)
        return self._user_code.prediction_arrays(
            self._user_code.postprocess(self._outputs(records)[0]), count(records)
        )

    @override
    def export(self, folder: Path, lookup: Lookup | None = None) -> None:
        del lookup
        self._user_code.set_context("the export")
        if self._user_code.model.has("export"):
            self._user_code.call_function("export", self._user_model, folder)
        else:
            np.savez(folder / NUMPY_FILE, **self._parameters)

    @override
    def parameters(self) -> Arrays:
        return {name: array.copy() for name, array in self._parameters.items()}

    @override
    def load_parameters(self, arrays: Mapping[str, Any], origin: str) -> None:
        difference = first_difference(_shapes(self._parameters), _shapes(arrays))
        if difference:
            raise mismatch_error(origin, difference)
        for name, array in self._parameters.items():
            array[...] = arrays[name]

    def _outputs(self, records: Any) -> tuple[Any, Any]:
        inputs, labels = self._user_code.feed(records)
        return self._user_code.call("forward(inputs)", self._user_model.forward, inputs), labels

    def _loss(self, outputs: Any, labels: Any) -> tuple[float, Any]:
        pair = self._user_code.call_function("loss", outputs, labels)
        if not isinstance(pair, tuple) or len(pair) != 2:  # noqa: PLR2004 - a pair has two elements
            raise ModelError(
                f"{SIGNATURES['loss']} of {self._user_code.model.path} must return a pair for a model in "
                "plain numpy: the mean loss, and its gradient with respect to the outputs"
            )
        return self._user_code.to_float(SIGNATURES["loss"], pair[0]), pair[1]

    def _loss_and_gradients(self, records: Any) -> tuple[float, Arrays]:
        """Returns a batch's mean loss and the gradients of this loss."""
        outputs, labels = self._outputs(records)
        loss, slope = self._loss(outputs, labels)
        gradients = self._user_code.call("gradients(slope)", self._user_model.gradients, slope)
        for name, array in gradients.items():
            if name not in self._parameters or np.shape(array) != self._parameters[name].shape:
                raise ModelError(
                    f"gradients(slope) of {self._user_code.model.path} returned {name!r} of shape "
                    f"{list(np.shape(array))}: it must return arrays shaped like the parameters"
                )
        return loss, gradients


class NumpyReplica(NumpyModel, Replica, PartedReplica):
    """A `Replica` of a model in plain numpy."""

    def __init__(self, user_model: Any, user_code: UserCode) -> None:
        super().__init__(user_model, user_code)
        self._optimizer = NumpyOptimizer(
            user_code.call_function("optimizer", self._parameters),
            self._parameters,
            user_code.model.path,
        )
        self._gradient = {name: np.zeros_like(array) for name, array in self._parameters.items()}
        self.size = sum(array.size for array in self._parameters.values())

    @override
    def backward(self, records: Any, weight: float, micro: Micro) -> dict[str, float]:
        self._user_code.set_context(
            f"step {micro.step + 1}, micro-batch {micro.index + 1}", records
        )
        seed_everything(micro.seed)
        loss, gradients = self._loss_and_gradients(records)
        for name, array in gradients.items():
            self._gradient[name] += weight * array
        return {"loss": loss}

    @override
    def read_gradient(self, out: np.ndarray) -> None:
        np.concatenate([gradient.ravel() for gradient in self._gradient.values()], out=out)

    @override
    def write_gradient(self, flat: np.ndarray) -> None:
        offset = 0
        for gradient in self._gradient.values():
            gradient[...] = flat[offset : offset + gradient.size].reshape(gradient.shape)
            offset += gradient.size

    @override
    def step(self, scale: float) -> None:
        self._optimizer.step(self._gradient, scale)
        self.clear()

    @override
    def clear(self) -> None:
        for gradient in self._gradient.values():
            gradient.fill(0)

    @override
    def state(self) -> State:
        arrays = {MODEL_PREFIX + name: array for name, array in self._parameters.items()}
        arrays.update((_SLOTS + name, array) for name, array in self._optimizer.slots.items())
        return State(arrays, {"steps": self._optimizer.steps})

    @override
    def groups(self) -> list[ArrayGroup]:
        arrays = self.state().arrays
        if not all(array.flags.c_contiguous for array in arrays.values()):
            return []  # flattening a non-contiguous array copies it
        groups = []
        for name, array in self._parameters.items():
            slots = [slot for slot in self._optimizer.slots if slot.partition("/")[2] == name]
            names = (MODEL_PREFIX + name, *(_SLOTS + slot for slot in slots))
            item_bytes = sum(arrays[key].itemsize for key in names)
            groups.append(ArrayGroup(names, array.size, item_bytes))
        return groups

    @override
    def read_slice(self, name: str, start: int, stop: int) -> np.ndarray:
        return self._flat(name)[start:stop].copy()

    @override
    def write_slice(self, name: str, start: int, elements: np.ndarray) -> None:
        self._flat(name)[start : start + len(elements)] = elements

    @override
    def rest(self) -> State:
        return State({}, self.state().extra)

    @override
    def load_rest(self, rest: State) -> None:
        self._optimizer.steps = int(rest.extra["steps"])

    def _flat(self, name: str) -> np.ndarray:
        array: np.ndarray = self.state().arrays[name]
        return array.reshape(-1)

    @override
    def load(self, state: State) -> None:
        arrays = self.state().arrays
        difference = first_difference(_shapes(arrays), _shapes(state.arrays))
        if difference:
            raise mismatch_error("the state", difference)
        if "steps" not in state.extra:
            raise CheckpointError("the state is of another framework: it has no number of steps")
        for name, array in arrays.items():
            array[...] = state.arrays[name]
        self._optimizer.steps = int(state.extra["steps"])


class NumpyWorker(NumpyModel, Worker):
    """A `Worker` of a model in plain numpy, without tables."""

    def __init__(self, user_model: Any, user_code: UserCode) -> None:
        super().__init__(user_model, user_code)
        self._optimizer = dict(user_code.call_function("optimizer", self._parameters))
        self._batches = 0
        user_code.memory_advice = SMALLER_BATCH

    @override
    def initial(self) -> Arrays:
        return self.parameters()

    @override
    def tables(self) -> dict[str, Table]:
        return {}

    @override
    def optimizer(self) -> dict[str, Any]:
        return self._optimizer

    @override
    def load(self, dense: Mapping[str, Any]) -> None:
        self.load_parameters(dense, "the servers' model")

    @override
    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        del lookup
        self._batches += 1
        self._user_code.set_context(f"its batch {self._batches}", records)
        loss, gradients = self._loss_and_gradients(records)
        return Gradients(gradients, {}, {"loss": loss})


def _shapes(arrays: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(np.shape(array)) for name, array in arrays.items()}
