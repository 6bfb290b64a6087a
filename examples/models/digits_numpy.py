r"""Handwritten digits in plain numpy: what a model without a framework looks like.

    python examples/models/make_data.py build/data
    edl train examples/models/digits_numpy.py --data build/data/digits-train.npz \\
        --evaluate build/data/digits-test.npz --epochs 8 --batch-size 32 -n 2

There is no `feed`: with the two arrays of the file, images and labels, the first are the inputs.
"""

from typing import Any

import numpy as np

Arrays = dict[str, Any]


class Network:
    """One hidden layer."""

    def __init__(self) -> None:
        draw = np.random.normal  # EDL seeds it, alike for all trainers
        self.parameters = {
            "w1": draw(0, 0.15, (64, 64)).astype(np.float32),
            "b1": np.zeros(64, np.float32),
            "w2": draw(0, 0.15, (64, 10)).astype(np.float32),
            "b2": np.zeros(10, np.float32),
        }

    def forward(self, inputs: Any) -> Any:
        """Scores of the ten digits."""
        own = self.parameters
        self.inputs = inputs
        self.hidden = np.maximum(0, inputs @ own["w1"] + own["b1"])
        return self.hidden @ own["w2"] + own["b2"]

    def gradients(self, slope: Any) -> Arrays:
        """Of the loss, by its slope with regard to the scores."""
        back = (slope @ self.parameters["w2"].T) * (self.hidden > 0)
        return {
            "w1": self.inputs.T @ back,
            "b1": back.sum(0),
            "w2": self.hidden.T @ slope,
            "b2": slope.sum(0),
        }


def model() -> Network:
    """An object with parameters, forward and gradients."""
    return Network()


def loss(outputs: Any, labels: Any) -> tuple[Any, Any]:
    """The mean cross entropy, and its slope with regard to the outputs."""
    odds = np.exp(outputs - outputs.max(1, keepdims=True))
    odds /= odds.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    mean = -np.log(odds[rows, labels] + 1e-12).mean()
    odds[rows, labels] -= 1
    return mean, odds / len(labels)


def optimizer(parameters: Arrays) -> dict[str, Any]:  # noqa: ARG001 - as in all models
    """Of the kinds sgd, momentum, adagrad and adam."""
    return {"kind": "momentum", "learning_rate": 0.1, "momentum": 0.9}


def accuracy(outputs: Any, labels: Any) -> Any:
    """Share of images that are told right."""
    return (outputs.argmax(1) == labels).mean()


def metrics() -> dict[str, Any]:
    """Means over the batch, beside the loss."""
    return {"accuracy": accuracy}


def predict(outputs: Any) -> Arrays:
    """What `edl predict` writes for each record."""
    return {"digit": outputs.argmax(1)}
