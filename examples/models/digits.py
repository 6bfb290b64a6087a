r"""Handwritten digits: a small convolutional network in PaddlePaddle.

    python examples/models/make_data.py build/data
    edl train examples/models/digits.py --data build/data/digits-train.npz \\
        --evaluate build/data/digits-test.npz --epochs 8 --batch-size 32 -n 2

Not a line says how many trainers there are, or whether they train synchronously (`--sync`) or with
parameter servers (`--async`).
"""

from typing import Any

import paddle
from paddle import Tensor, nn


def model() -> nn.Layer:
    """Two convolutions and a linear layer."""
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
    """The mean over the batch."""
    return nn.functional.cross_entropy(outputs, labels)


def optimizer(parameters: list[Tensor]) -> paddle.optimizer.Optimizer:
    """Any of paddle.optimizer; parameter servers have SGD, Momentum, Adagrad and Adam."""
    return paddle.optimizer.Adam(1e-3, parameters=parameters)


def feed(records: dict[str, Any]) -> tuple[Any, Any]:
    """Inputs and labels of a batch: of an .npz file, records are arrays by name."""
    return records["images"].reshape(-1, 1, 8, 8), records.get("labels")


def accuracy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Share of images that are told right."""
    return (outputs.argmax(1) == labels).astype("float32").mean()


def metrics() -> dict[str, Any]:
    """Means over the batch, beside the loss."""
    return {"accuracy": accuracy}


def predict(outputs: Tensor) -> dict[str, Tensor]:
    """What `edl predict` writes for each record."""
    return {"digit": outputs.argmax(1), "probability": nn.functional.softmax(outputs).max(1)}
