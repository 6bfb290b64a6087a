"""Runs, evaluates and predicts with a user's layer; shared by all frameworks that have layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from edl.model.data import count
from edl.model.functions import SIGNATURES
from edl.model.metrics import finish
from edl.model.protocols import Adapter
from edl.model.user_code import UserCode
from edl.overriding import override

T = TypeVar("T")
Arrays = dict[str, Any]
Lookup = Callable[[str, Any], Any]
_LOSS = SIGNATURES["loss"]


class LayerModel(Adapter, ABC):
    """A layer of a framework, together with the user's functions."""

    def __init__(self, layer: Any, user_code: UserCode) -> None:
        """Puts the layer into training mode."""
        self.layer, self._user_code = layer, user_code
        self._metrics = user_code.metrics()
        layer.train()

    def outputs(self, records: Any) -> tuple[Any, Any]:
        """Runs the layer on a batch, and returns the outputs and the batch's labels."""
        inputs, labels = self._user_code.feed(records)
        labels, inputs = self._user_code.call(
            "the conversion to tensors", lambda: (self._tensors(labels), self._tensors(inputs))
        )
        if isinstance(inputs, dict):
            return self._user_code.call("the model", lambda: self.layer(**inputs)), labels
        if isinstance(inputs, (list, tuple)):
            return self._user_code.call("the model", self.layer, *inputs), labels
        return self._user_code.call("the model", self.layer, inputs), labels

    @override
    def evaluate(self, records: Any, lookup: Lookup | None = None) -> dict[str, float]:
        del lookup
        self._user_code.set_context("an evaluation", records)

        def measure() -> dict[str, float]:
            outputs, labels = self.outputs(records)
            loss = self._user_code.call_function("loss", outputs, labels)
            metrics = self._user_code.metric_values(self._metrics, outputs, labels)
            return {"loss": self._user_code.to_float(_LOSS, loss), **metrics}

        return self._without_training(measure)

    @override
    def finish(self, reported: Mapping[str, float]) -> dict[str, float]:
        return finish(reported, self._metrics)

    @override
    def predict(self, records: Any, lookup: Lookup | None = None) -> Arrays:
        del lookup
        self._user_code.set_context("a prediction", records)

        def compute() -> Arrays:
            predictions = self._user_code.postprocess(self.outputs(records)[0])
            return self._user_code.prediction_arrays(predictions, count(records))

        return self._without_training(compute)

    @abstractmethod
    def _tensors(self, values: Any) -> Any:
        """Converts arrays to the framework's tensors; keeps other values."""

    @abstractmethod
    def _without_training(self, act: Callable[[], T]) -> T:
        """Calls `act` in evaluation mode: without dropout, gradients or running-statistics updates."""


def as_sequence(values: Any, items: Iterable[Any]) -> Any:
    """Returns the items as a list, a tuple or a named tuple, according to the type of `values`."""
    kind = type(values)
    return kind._make(items) if hasattr(kind, "_make") else kind(items)
