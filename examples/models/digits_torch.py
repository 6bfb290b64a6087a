r"""Handwritten digits: a small convolutional network in PyTorch.

    python examples/models/make_data.py build/data
    edl train examples/models/digits_torch.py --data build/data/digits-train.npz \
        --evaluate build/data/digits-test.npz --epochs 8 --batch-size 32 -n 2

Nothing in it depends on the number of trainers. Gradients travel through torch's own process groups.
"""

from typing import Any

import torch
from torch import Tensor, nn


def model() -> nn.Module:
    """Returns two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, 10),
    )


def loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean over the batch."""
    return nn.functional.cross_entropy(outputs, labels)


def optimizer(parameters: list[Tensor]) -> torch.optim.Optimizer:
    """Returns any of torch.optim, or a pair of it and one of torch.optim.lr_scheduler."""
    return torch.optim.Adam(parameters, 1e-3)


def feed(records: dict[str, Any]) -> tuple[Any, Any]:
    """Returns inputs and labels of a batch; records of an .npz file are arrays by name."""
    return records["images"].reshape(-1, 1, 8, 8), records.get("labels")


def accuracy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Returns the share of correct predictions."""
    return (outputs.argmax(1) == labels).float().mean()


def metrics() -> dict[str, Any]:
    """Returns the metrics besides the loss: means over the batch."""
    return {"accuracy": accuracy}


def predict(outputs: Tensor) -> dict[str, Tensor]:
    """Returns what `edl predict` writes for each record."""
    return {"digit": outputs.argmax(1), "probability": nn.functional.softmax(outputs, 1).amax(1)}
