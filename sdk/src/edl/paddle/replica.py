"""Synchronous training of a PaddlePaddle model: gradients in and out, and the state."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle

from edl.model.adapter import sow
from edl.model.calls import Calls
from edl.model.errors import ModelError
from edl.model.restoring import MODEL
from edl.paddle.memory import Flat
from edl.paddle.network import Network, fill
from edl.paddle.slots import Slots
from edl.paddle.statistics import Statistics
from edl.sync.replica import Micro, State


class PaddleReplica(Network):
    """A `Replica`: the gradient of all trainable parameters, then changes of running statistics.

    A parameter that a step does not reach has a gradient of zeros, so that all members do the same.
    """

    def __init__(self, layer: Any, calls: Calls) -> None:
        for part in layer.sublayers(include_self=True):
            if isinstance(part, paddle.nn.Embedding):
                part._sparse = False  # noqa: SLF001 - gradients are exchanged as one dense array
        super().__init__(layer, calls)
        self._flat = Flat([one.shape for one in self.trained])
        self._statistics = Statistics(layer)
        self._slots = Slots(calls.user("optimizer", layer.parameters()), layer, calls)
        self.size = self._flat.size + self._statistics.size
        self._checked = False

    def backward(self, records: Any, weight: float, micro: Micro) -> dict[str, float]:
        """As in `Replica`."""
        self._calls.at(f"step {micro.step + 1}, micro-batch {micro.index + 1}", records)
        sow(micro.seed)
        self._statistics.before()
        loss = self.loss(records)
        seed = None if weight == 1.0 else paddle.full(loss.shape, weight, loss.dtype)
        self._calls.run("the gradient", loss.backward, seed)
        self._statistics.after(weight)
        if not self._checked:
            self._check_gradients()
        return {"loss": loss.item()}

    def read_gradient(self, out: np.ndarray) -> None:
        """As in `Replica`."""
        self._flat.read([one.grad for one in self.trained], out[: self._flat.size])
        self._statistics.read(out[self._flat.size :])

    def write_gradient(self, flat: np.ndarray) -> None:
        """As in `Replica`."""
        own: set[int] = set()
        found = []
        for place, parameter in enumerate(self.trained):
            gradient = parameter.grad
            fine = gradient is not None and gradient.is_contiguous()
            if not fine or gradient.data_ptr() in own:  # two may share one memory: a sum's, say
                parameter.grad = self._flat.zeros(place)
                gradient = parameter.grad
            own.add(gradient.data_ptr())
            found.append(gradient)
        self._flat.write(flat, found)
        self._statistics.write(flat[self._flat.size :])

    def step(self, scale: float) -> None:
        """As in `Replica`."""
        self._calls.at("a step")
        for place, parameter in enumerate(self.trained):
            if parameter.grad is None:
                parameter.grad = self._flat.zeros(place)
        self._calls.run("the optimizer", self._slots.step, scale)
        self._statistics.step()
        self._drop()

    def clear(self) -> None:
        """As in `Replica`."""
        self._statistics.clear()
        self._drop()

    def state(self) -> State:
        """As in `Replica`."""
        arrays = {MODEL + name: one.numpy() for name, one in self.layer.state_dict().items()}
        arrays.update((name, one.numpy()) for name, one in self._slots.tensors().items())
        return State(arrays, self._slots.extra())

    def load(self, state: State) -> None:
        """As in `Replica`."""
        own = {MODEL + name: one for name, one in self.layer.state_dict().items()}
        fill({**own, **self._slots.tensors()}, state.arrays, "the state")
        self._slots.load(state.extra)
        self._statistics.loaded()
        self._drop()

    def _drop(self) -> None:
        for parameter in self.trained:
            parameter.clear_gradient(False)

    def _check_gradients(self) -> None:
        """Once: gradients must be arrays."""
        self._checked = True
        for name, parameter in zip(self.names, self.trained):
            if parameter.grad is not None and not parameter.grad.is_dense():
                raise ModelError(
                    f"the gradient of {name!r} is sparse: use paddle.nn.Embedding, or sparse=False, "
                    "for synchronous training"
                )
