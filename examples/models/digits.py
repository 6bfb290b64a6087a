r"""Handwritten digits: a small convolutional network in PaddlePaddle.

    python examples/models/make_data.py build/data
    edl train examples/models/digits.py --data build/data/digits-train.npz \\
        --evaluate build/data/digits-test.npz --epochs 8 --batch-size 32 -n 2

Nothing in it depends on the number of trainers, or on whether they train synchronously (`--sync`) or
with parameter servers (`--async`).
"""

from typing import Any

import paddle
from paddle import Tensor, nn


def model() -> nn.Layer:
    """Returns two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2D(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Conv2D(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, 10),
    )


def loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean over the batch."""
    return nn.functional.cross_entropy(outputs, labels)


def optimizer(parameters: list[Tensor]) -> paddle.optimizer.Optimizer:
    """Returns any of paddle.optimizer; parameter servers support SGD, Momentum, Adagrad and Adam."""
    return paddle.optimizer.Adam(1e-3, parameters=parameters)


def feed(records: dict[str, Any]) -> tuple[Any, Any]:
    """Returns inputs and labels of a batch; records of an .npz file are arrays by name."""
    return records["images"].reshape(-1, 1, 8, 8), records.get("labels")


def accuracy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Returns the share of correct predictions."""
    return (outputs.argmax(1) == labels).astype("float32").mean()


def metrics() -> dict[str, Any]:
    """Returns the metrics besides the loss: means over the batch."""
    return {"accuracy": accuracy}


def predict(outputs: Tensor) -> dict[str, Tensor]:
    """Returns what `edl predict` writes for each record."""
    return {"digit": outputs.argmax(1), "probability": nn.functional.softmax(outputs).max(1)}
