"""Synchronous training of a PaddlePaddle model."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle

from edl.model.errors import ModelError
from edl.model.paddle.flat_buffer import FlatBuffer
from edl.model.paddle.network import Network, set_tensors
from edl.model.paddle.optimizer_state import OptimizerState
from edl.model.paddle.running_statistics import RunningStatistics
from edl.model.paddle.state_slices import StateSlices
from edl.model.parameters import MODEL_PREFIX
from edl.model.seeding import seed_everything
from edl.model.user_code import UserCode
from edl.overriding import override
from edl.sync.parts import ArrayGroup, PartedReplica
from edl.sync.replica import Micro, Replica, State


class PaddleReplica(Network, Replica, PartedReplica):
    """A `Replica` whose flat gradient ends with the changes of the running statistics.

    A parameter that a step does not use gets a gradient of zeros, so that all members' gradients have the
    same layout.
    """

    def __init__(self, layer: Any, user_code: UserCode) -> None:
        for part in layer.sublayers(include_self=True):
            if isinstance(part, paddle.nn.Embedding):
                part._sparse = False  # noqa: SLF001 - gradients are exchanged as one dense array
        super().__init__(layer, user_code)
        self._flat = FlatBuffer([parameter.shape for parameter in self.trained])
        self._statistics = RunningStatistics(layer)
        self._optimizer_state = OptimizerState(
            user_code.call_function("optimizer", layer.parameters()), layer, user_code
        )
        self.size = self._flat.size + self._statistics.size
        self._checked = False
        constant = [
            name
            for name, parameter in layer.named_parameters()
            if parameter.stop_gradient and not self._statistics.has(parameter)
        ]
        self._slices = StateSlices(self._state_tensors, [*self.names, *constant])

    @override
    def backward(self, records: Any, weight: float, micro: Micro) -> dict[str, float]:
        self._user_code.set_context(
            f"step {micro.step + 1}, micro-batch {micro.index + 1}", records
        )
        seed_everything(micro.seed)
        self._statistics.start_forward()
        loss = self.loss(records)
        seed = None if weight == 1.0 else paddle.full(loss.shape, weight, loss.dtype)
        self._user_code.call("the gradient", loss.backward, seed)
        self._statistics.finish_forward(weight)
        if not self._checked:
            self._check_gradients()
        return {"loss": loss.item()}

    @override
    def read_gradient(self, out: np.ndarray) -> None:
        self._flat.read([parameter.grad for parameter in self.trained], out[: self._flat.size])
        self._statistics.read(out[self._flat.size :])

    @override
    def write_gradient(self, flat: np.ndarray) -> None:
        addresses: set[int] = set()
        gradients = []
        for index, parameter in enumerate(self.trained):
            gradient = parameter.grad
            usable = gradient is not None and gradient.is_contiguous()
            # two gradients may share memory, for example those of a sum's operands
            if not usable or gradient.data_ptr() in addresses:
                parameter.grad = self._flat.zeros(index)
                gradient = parameter.grad
            addresses.add(gradient.data_ptr())
            gradients.append(gradient)
        self._flat.write(flat, gradients)
        self._statistics.write(flat[self._flat.size :])

    @override
    def step(self, scale: float) -> None:
        self._user_code.set_context("a step")
        for index, parameter in enumerate(self.trained):
            if parameter.grad is None:
                parameter.grad = self._flat.zeros(index)
        self._user_code.call("the optimizer", self._optimizer_state.step, scale)
        self._statistics.step()
        self._clear_gradients()

    @override
    def clear(self) -> None:
        self._statistics.clear()
        self._clear_gradients()

    @override
    def state(self) -> State:
        arrays = {name: tensor.numpy() for name, tensor in self._state_tensors().items()}
        return State(arrays, self._optimizer_state.extra())

    @override
    def load(self, state: State) -> None:
        set_tensors(self._state_tensors(), state.arrays, "the state")
        self._optimizer_state.load(state.extra)
        self._statistics.restart()
        self._clear_gradients()

    @override
    def groups(self) -> list[ArrayGroup]:
        return self._slices.groups() if self._optimizer_state.is_elementwise else []

    @override
    def read_slice(self, name: str, start: int, stop: int) -> np.ndarray:
        """Returns the bytes of elements [start, stop) of an array."""
        return self._slices.read(name, start, stop)

    @override
    def write_slice(self, name: str, start: int, elements: np.ndarray) -> None:
        self._slices.write(name, start, elements)

    @override
    def rest(self) -> State:
        self._statistics.restore_tensors()
        return State(self._slices.rest(), self._optimizer_state.extra())

    @override
    def load_rest(self, rest: State) -> None:
        tensors = self._slices.rest_tensors()
        set_tensors(tensors, rest.arrays, "the state")
        self._optimizer_state.load(rest.extra)
        self._statistics.restart()

    def _state_tensors(self) -> dict[str, Any]:
        parameters = {
            MODEL_PREFIX + name: tensor for name, tensor in self.layer.state_dict().items()
        }
        return {**parameters, **self._optimizer_state.tensors()}

    def _clear_gradients(self) -> None:
        for parameter in self.trained:
            parameter.clear_gradient(False)

    def _check_gradients(self) -> None:
        """Checks once that gradients are dense."""
        self._checked = True
        for name, parameter in zip(self.names, self.trained):
            if parameter.grad is not None and not parameter.grad.is_dense():
                raise ModelError(
                    f"the gradient of {name!r} is sparse: use paddle.nn.Embedding, or sparse=False, "
                    "for synchronous training"
                )
