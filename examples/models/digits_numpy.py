r"""Handwritten digits in plain numpy: a model without a framework.

    python examples/models/make_data.py build/data
    edl train examples/models/digits_numpy.py --data build/data/digits-train.npz \\
        --evaluate build/data/digits-test.npz --epochs 8 --batch-size 32 -n 2

It has no `feed`: the file has two arrays, images and labels, and the first one is the input.
"""

from typing import Any

import numpy as np

Arrays = dict[str, Any]


class Network:
    """One hidden layer."""

    def __init__(self) -> None:
        draw = np.random.normal  # EDL seeds it with the same seed in all trainers
        self.parameters = {
            "w1": draw(0, 0.15, (64, 64)).astype(np.float32),
            "b1": np.zeros(64, np.float32),
            "w2": draw(0, 0.15, (64, 10)).astype(np.float32),
            "b2": np.zeros(10, np.float32),
        }

    def forward(self, inputs: Any) -> Any:
        """Returns the scores of the ten digits."""
        own = self.parameters
        self.inputs = inputs
        self.hidden = np.maximum(0, inputs @ own["w1"] + own["b1"])
        return self.hidden @ own["w2"] + own["b2"]

    def gradients(self, slope: Any) -> Arrays:
        """Returns gradients of the loss, given its gradient with respect to the scores."""
        back = (slope @ self.parameters["w2"].T) * (self.hidden > 0)
        return {
            "w1": self.inputs.T @ back,
            "b1": back.sum(0),
            "w2": self.hidden.T @ slope,
            "b2": slope.sum(0),
        }


def model() -> Network:
    """Returns an object with parameters, forward and gradients."""
    return Network()


def loss(outputs: Any, labels: Any) -> tuple[Any, Any]:
    """Returns the mean cross entropy, and its gradient with respect to the outputs."""
    odds = np.exp(outputs - outputs.max(1, keepdims=True))
    odds /= odds.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    mean = -np.log(odds[rows, labels] + 1e-12).mean()
    odds[rows, labels] -= 1
    return mean, odds / len(labels)


def optimizer(parameters: Arrays) -> dict[str, Any]:  # noqa: ARG001 - as in all models
    """Returns an optimizer of kind sgd, momentum, adagrad or adam."""
    return {"kind": "momentum", "learning_rate": 0.1, "momentum": 0.9}


def accuracy(outputs: Any, labels: Any) -> Any:
    """Returns the share of correct predictions."""
    return (outputs.argmax(1) == labels).mean()


def metrics() -> dict[str, Any]:
    """Returns the metrics besides the loss: means over the batch."""
    return {"accuracy": accuracy}


def predict(outputs: Any) -> Arrays:
    """Returns what `edl predict` writes for each record."""
    return {"digit": outputs.argmax(1)}
