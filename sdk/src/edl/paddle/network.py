"""A user's layer at work: forward passes, evaluation, prediction and export, whoever trains it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import paddle

from edl.model.calls import Calls
from edl.model.data import count
from edl.model.errors import ModelError
from edl.model.functions import SIGNATURES
from edl.model.restoring import PADDLE, differences, refuse
from edl.paddle.sigterm import give_back

T = TypeVar("T")
Arrays = dict[str, Any]
Lookup = Callable[[str, Any], Any]
_LOSS = SIGNATURES["loss"]
_NARROW = {np.dtype(np.float64): np.float32, np.dtype(np.uint32): np.int64}
"""What numpy makes by itself and layers do not take."""


class Network:
    """A layer and the user's functions."""

    def __init__(self, layer: Any, calls: Calls) -> None:
        give_back()
        self.layer, self._calls = layer, calls
        self._metrics = calls.metrics()
        layer.train()
        self.trained: list[Any] = []
        self.names: list[str] = []
        for name, one in layer.named_parameters():
            if not one.stop_gradient:
                self.trained.append(one)
                self.names.append(name)
                _check(calls, name, one)
        if not self.trained:
            raise ModelError(f"model() of {calls.model.path} has no trainable parameters")

    def loss(self, records: Any) -> Any:
        """The mean loss of a batch, from which gradients can be computed."""
        outputs, labels = self.outputs(records)
        found = self._calls.user("loss", outputs, labels)
        if not isinstance(found, paddle.Tensor) or found.stop_gradient:
            raise ModelError(
                f"{_LOSS} of {self._calls.model.path} does not depend on the parameters: compute it "
                "of the outputs with paddle's functions, and return the tensor"
            )
        if found.shape not in ([], [1]):  # `size` takes longer than all that is done here
            self._calls.number(_LOSS, found)
        return found

    def outputs(self, records: Any) -> tuple[Any, Any]:
        """Outputs and labels of a batch."""
        inputs, labels = self._calls.feed(records)
        labels = _tensors(labels)
        inputs = _tensors(inputs)
        if isinstance(inputs, dict):
            return self._calls.run("the model", lambda: self.layer(**inputs)), labels
        if isinstance(inputs, (list, tuple)):
            return self._calls.run("the model", self.layer, *inputs), labels
        return self._calls.run("the model", self.layer, inputs), labels

    def evaluate(self, records: Any, lookup: Lookup | None = None) -> dict[str, float]:
        """As in `Adapter`."""
        del lookup
        self._calls.at("an evaluation", records)

        def measure() -> dict[str, float]:
            outputs, labels = self.outputs(records)
            loss = self._calls.user("loss", outputs, labels)
            found = {"loss": self._calls.number(_LOSS, loss)}
            for name, metric in self._metrics.items():
                found[name] = self._calls.measured(name, metric, outputs, labels)
            return found

        return self._watching(measure)

    def predict(self, records: Any, lookup: Lookup | None = None) -> Arrays:
        """As in `Adapter`."""
        del lookup
        self._calls.at("a prediction", records)

        def tell() -> Arrays:
            found = self._calls.predicted(self.outputs(records)[0])
            return self._calls.rows(found, count(records))

        return self._watching(tell)

    def export(self, folder: Path, lookup: Lookup | None = None) -> None:
        """As in `Adapter`."""
        del lookup
        self.write(self.layer, folder)

    def write(self, layer: Any, folder: Path) -> None:
        """Exports a layer."""
        self._calls.at("the export")
        layer.eval()
        try:
            if self._calls.model.has("export"):
                self._calls.user("export", layer, folder)
            else:
                paddle.save(layer.state_dict(), str(folder / PADDLE))
        finally:
            layer.train()

    def parameters(self) -> Arrays:
        """As in `Adapter`."""
        return {name: one.numpy() for name, one in self.layer.state_dict().items()}

    def take(self, arrays: Mapping[str, Any], origin: str) -> None:
        """As in `Adapter`."""
        fill(self.layer.state_dict(), arrays, origin)

    def _watching(self, act: Callable[[], T]) -> T:
        """Does it without training: no dropout, no gradients, no statistics."""
        self.layer.eval()
        try:
            with paddle.no_grad():
                return act()
        finally:
            self.layer.train()


def shapes(arrays: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name -> shape."""
    return {name: tuple(one.shape) for name, one in arrays.items()}


def fill(tensors: Mapping[str, Any], arrays: Mapping[str, Any], origin: str) -> None:
    """Sets tensors, if all fit.

    Raises:
        CheckpointError: They are another model's; nothing is changed then.
    """
    what = differences(shapes(tensors), shapes(arrays))
    if what:
        raise refuse(origin, what)
    for name, one in tensors.items():
        one.set_value(np.ascontiguousarray(arrays[name]))


def read(path: Path) -> Arrays:
    """The arrays of a file that `paddle.save` wrote."""
    return dict(paddle.load(str(path), return_numpy=True))


def _tensors(found: Any) -> Any:
    """Tensors of arrays; what is a tensor already stays one."""
    if isinstance(found, np.ndarray):
        narrow = _NARROW.get(found.dtype)
        return paddle.to_tensor(found if narrow is None else found.astype(narrow))
    if isinstance(found, dict):
        return {name: _tensors(one) for name, one in found.items()}
    if isinstance(found, (list, tuple)):
        return type(found)(_tensors(one) for one in found)
    return found


def _check(calls: Calls, name: str, parameter: Any) -> None:
    if parameter.dtype != paddle.float32:
        kind = str(parameter.dtype).rpartition(".")[2]
        raise ModelError(
            f"model() of {calls.model.path}: parameter {name!r} is {kind}: parameters that are "
            "trained must be float32"
        )
