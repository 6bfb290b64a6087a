"""A perceptron on drawn digits, in plain numpy: alone, or as a worker of parameter servers."""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from edl.servers import Gradients, Lookup, Table

Arrays = dict[str, Any]
RATE, BATCH, EPOCHS = 0.5, 32, 14
TRAINED, TESTED = 1437, 1563
"""Images; a point is more than a handful of those that are tested."""


def example(name: str = "numpy_digits/train.py") -> Any:
    """An example, as a module; the one in plain numpy has the images."""
    path = Path(__file__).parents[3] / "examples" / name
    spec = importlib.util.spec_from_file_location(path.parent.name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def slopes(weights: Mapping[str, Any], x: Any, y: Any) -> tuple[Arrays, float]:
    """Gradients of the mean cross entropy, and itself."""
    hidden = np.maximum(0, x @ weights["w1"] + weights["b1"])
    scores = hidden @ weights["w2"] + weights["b2"]
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = float(-np.log(odds[rows, y] + 1e-9).mean())
    odds[rows, y] -= 1
    odds /= len(y)
    back = (odds @ weights["w2"].T) * (hidden > 0)
    gradients = {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ odds, "b2": odds.sum(0)}
    return gradients, loss


class Digits:
    """The worker."""

    def __init__(self, first: Arrays) -> None:
        self._first = first
        self.weights: Arrays = {}

    def initial(self) -> Arrays:
        """As given."""
        return self._first

    def tables(self) -> dict[str, Table]:
        """None."""
        return {}

    def optimizer(self) -> dict[str, Any]:
        """Plain descent, as `alone` has it."""
        return {"kind": "sgd", "learning_rate": RATE}

    def load(self, dense: Mapping[str, Any]) -> None:
        """Copies."""
        self.weights = {name: array.copy() for name, array in dense.items()}

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """Of one batch."""
        del lookup
        dense, loss = slopes(self.weights, *records)
        return Gradients(dense, {}, {"loss": loss})


def alone(first: Arrays, images: Any, labels: Any, epochs: int) -> Arrays:
    """One process that trains synchronously."""
    weights = {name: array.astype(np.float32) for name, array in first.items()}
    chance = np.random.default_rng(1)
    for _ in range(epochs):
        order = chance.permutation(len(labels))
        for at in range(0, len(order), BATCH):
            batch_ids = order[at : at + BATCH]
            for name, slope in slopes(weights, images[batch_ids], labels[batch_ids])[0].items():
                weights[name] -= RATE * slope
    return weights
