"""A model for `bench.steps`, large enough that its steps and gradients cost time and traffic.

Half a million parameters; a step of 256 records takes some tens of milliseconds of one core.
"""

from typing import Any

import numpy as np

Arrays = dict[str, Any]
WIDTH, HIDDEN, CLASSES = 512, 1024, 10


class Network:
    """A network with one hidden layer."""

    def __init__(self) -> None:
        draw = np.random.normal  # EDL seeds it equally for all trainers
        self.parameters = {
            "w1": draw(0, 0.05, (WIDTH, HIDDEN)).astype(np.float32),
            "w2": draw(0, 0.05, (HIDDEN, CLASSES)).astype(np.float32),
        }

    def forward(self, inputs: Any) -> Any:
        """Returns the scores of the classes."""
        self.inputs = inputs
        self.hidden = np.maximum(0, inputs @ self.parameters["w1"])
        return self.hidden @ self.parameters["w2"]

    def gradients(self, slope: Any) -> Arrays:
        """Returns the gradients of the loss, from its derivative with respect to the scores."""
        back = (slope @ self.parameters["w2"].T) * (self.hidden > 0)
        return {"w1": self.inputs.T @ back, "w2": self.hidden.T @ slope}


def model() -> Network:
    """Creates the network, like the models in examples/models."""
    return Network()


def loss(outputs: Any, labels: Any) -> tuple[Any, Any]:
    """Returns the mean cross entropy and its derivative."""
    odds = np.exp(outputs - outputs.max(1, keepdims=True))
    odds /= odds.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    mean = -np.log(odds[rows, labels] + 1e-12).mean()
    odds[rows, labels] -= 1
    return mean, odds / len(labels)


def optimizer(parameters: Arrays) -> dict[str, Any]:  # noqa: ARG001 - as in all models
    """Returns the optimizer; the loss does not matter, so the rate is low."""
    return {"kind": "momentum", "learning_rate": 0.001, "momentum": 0.9}


def write(path: str, records: int) -> None:
    """Writes training data for the model."""
    chance = np.random.default_rng(0)
    inputs = chance.normal(size=(records, WIDTH)).astype(np.float32)
    np.savez(path, inputs=inputs, labels=chance.integers(0, CLASSES, records))
