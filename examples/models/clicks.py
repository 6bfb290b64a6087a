r"""Click prediction: embeddings of users and items, in PaddlePaddle.

    python examples/models/make_data.py build/data
    edl train examples/models/clicks.py --async --servers 2 -n 4 --epochs 4 \\
        --data build/data/clicks-train.csv --evaluate build/data/clicks-test.csv

With `--async`, embeddings with `sparse=True` are tables at the parameter servers: a trainer reads
the rows that its batch needs, and no more. With `--sync` they are parameters like all others.
"""

from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn

USERS, ITEMS, HOURS, SIZE = 100, 150, 24, 8


class Clicks(nn.Layer):  # type: ignore[misc] # paddle ships no types
    """A wide part with one weight per id, and a deep part with embeddings."""

    def __init__(self) -> None:
        super().__init__()
        begin = nn.initializer.Uniform(-0.2, 0.2)
        self.wide = nn.Embedding(USERS + ITEMS, 1, sparse=True, weight_attr=begin)
        self.users = nn.Embedding(USERS, SIZE, sparse=True, weight_attr=begin)
        self.items = nn.Embedding(ITEMS, SIZE, sparse=True, weight_attr=begin)
        self.deep = nn.Sequential(nn.Linear(3 * SIZE + 1, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, users: Tensor, items: Tensor, hours: Tensor) -> Tensor:
        """Returns the log-odds of a click."""
        user, item = self.users(users), self.items(items)
        both = paddle.concat([user, item, user * item, hours], axis=1)
        ids = paddle.stack([users, items + USERS], axis=1)
        return self.deep(both)[:, 0] + (user * item).sum(1) + self.wide(ids).sum([1, 2])


def model() -> nn.Layer:
    """Returns a wide and deep model."""
    return Clicks()


def loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean over the batch."""
    return nn.functional.binary_cross_entropy_with_logits(outputs, labels)


def optimizer(parameters: list[Tensor]) -> paddle.optimizer.Optimizer:
    """Returns Adam; at the servers it does not change rows that a batch does not use."""
    return paddle.optimizer.Adam(1e-2, parameters=parameters)


def feed(records: list[dict[str, str]]) -> tuple[Any, Any]:
    """Returns inputs and labels of a batch; records of a .csv file are dicts."""
    users, items = (np.array([int(row[name]) for row in records]) for name in ("user", "item"))
    hours = np.array([[int(row["hour"]) / HOURS] for row in records], np.float32)
    labels = [float(row["clicked"]) for row in records if "clicked" in row]
    return (users, items, hours), np.array(labels, np.float32) if labels else None


def accuracy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Returns the share of correct predictions."""
    return ((outputs > 0) == (labels > 0)).astype("float32").mean()


def metrics() -> dict[str, Any]:
    """Returns the metrics besides the loss: means over the batch."""
    return {"accuracy": accuracy}


def predict(outputs: Tensor) -> dict[str, Tensor]:
    """Returns the probability of a click."""
    return {"probability": nn.functional.sigmoid(outputs)}
