"""Forward passes, evaluation, prediction and export of a user's layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import paddle

from edl.model.errors import ModelError
from edl.model.functions import SIGNATURES
from edl.model.layer_model import LayerModel, as_sequence
from edl.model.paddle.sigterm import restore_handler
from edl.model.parameters import PADDLE_FILE, first_difference, mismatch_error
from edl.model.user_code import UserCode
from edl.overriding import override

T = TypeVar("T")
Arrays = dict[str, Any]
Lookup = Callable[[str, Any], Any]
_LOSS = SIGNATURES["loss"]
_NARROW = {np.dtype(np.float64): np.float32, np.dtype(np.uint32): np.int64}
"""numpy's default types that layers do not accept, and their replacements."""


class Network(LayerModel):
    """A user's layer and functions, the base class of replica and worker."""

    def __init__(self, layer: Any, user_code: UserCode) -> None:
        restore_handler()
        super().__init__(layer, user_code)
        self.trained: list[Any] = []
        self.names: list[str] = []
        for name, parameter in layer.named_parameters():
            if not parameter.stop_gradient:
                self.trained.append(parameter)
                self.names.append(name)
                _check(user_code, name, parameter)
        if not self.trained:
            raise ModelError(f"model() of {user_code.model.path} has no trainable parameters")

    def loss(self, records: Any) -> Any:
        """Returns the mean loss of a batch as a tensor with gradients."""
        outputs, labels = self.outputs(records)
        loss = self._user_code.call_function("loss", outputs, labels)
        if not isinstance(loss, paddle.Tensor) or loss.stop_gradient:
            raise ModelError(
                f"{_LOSS} of {self._user_code.model.path} does not depend on the parameters: compute it "
                "of the outputs with paddle's functions, and return the tensor"
            )
        # reading `loss.size` would take longer than this whole method
        if loss.shape not in ([], [1]):
            self._user_code.to_float(_LOSS, loss)
        return loss

    @override
    def export(self, folder: Path, lookup: Lookup | None = None) -> None:
        del lookup
        self.write(self.layer, folder)

    def write(self, layer: Any, folder: Path) -> None:
        """Exports a layer into a folder, with the user's `export` if the file defines it."""
        self._user_code.set_context("the export")
        layer.eval()
        try:
            if self._user_code.model.has("export"):
                self._user_code.call_function("export", layer, folder)
            else:
                paddle.save(layer.state_dict(), str(folder / PADDLE_FILE))
        finally:
            layer.train()

    @override
    def parameters(self) -> Arrays:
        return {name: tensor.numpy() for name, tensor in self.layer.state_dict().items()}

    @override
    def load_parameters(self, arrays: Mapping[str, Any], origin: str) -> None:
        set_tensors(self.layer.state_dict(), arrays, origin)

    @override
    def _tensors(self, values: Any) -> Any:
        return _tensors(values)

    @override
    def _without_training(self, act: Callable[[], T]) -> T:
        self.layer.eval()
        try:
            with paddle.no_grad():
                return act()
        finally:
            self.layer.train()


def shapes(arrays: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns name -> shape of each array."""
    return {name: tuple(array.shape) for name, array in arrays.items()}


def set_tensors(tensors: Mapping[str, Any], arrays: Mapping[str, Any], origin: str) -> None:
    """Sets tensors to the arrays of the same names, if all names and shapes match.

    Raises:
        CheckpointError: The arrays belong to another model; no tensor has been changed.
    """
    difference = first_difference(shapes(tensors), shapes(arrays))
    if difference:
        raise mismatch_error(origin, difference)
    for name, tensor in tensors.items():
        tensor.set_value(np.ascontiguousarray(arrays[name]))


def _tensors(values: Any) -> Any:
    """Converts arrays to tensors; keeps other values."""
    if isinstance(values, np.ndarray):
        narrow = _NARROW.get(values.dtype)
        return paddle.to_tensor(values if narrow is None else values.astype(narrow))
    if isinstance(values, dict):
        return {name: _tensors(value) for name, value in values.items()}
    if isinstance(values, (list, tuple)):
        return as_sequence(values, map(_tensors, values))
    return values


def _check(user_code: UserCode, name: str, parameter: Any) -> None:
    if parameter.dtype != paddle.float32:
        kind = str(parameter.dtype).rpartition(".")[2]
        raise ModelError(
            f"model() of {user_code.model.path}: parameter {name!r} is {kind}: parameters that are "
            "trained must be float32"
        )
