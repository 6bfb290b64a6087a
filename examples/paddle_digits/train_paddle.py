"""A classifier of handwritten digits in PaddlePaddle; the loop is elastic by `edl.batches`.

    pip install paddlepaddle==3.3.1 scikit-learn edl-sdk
    edl run -n 2 examples/paddle_digits/train_paddle.py --out build/paddle-digits

Each trainer trains a model of its own on its own tasks and saves it now and then, unless another's
has been trained for longer; a trainer that comes late begins at the newest checkpoint.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # trainers share the machine's cores

import edl
import numpy as np
import paddle
from paddle import nn
from sklearn.datasets import load_digits

TEST = 360
BATCH = 32
SAVE_EVERY = 20
"""Steps of a trainer."""


def digits() -> tuple[Any, Any]:
    """scikit-learn's 1 797 images of 64 pixels, in an order that all trainers share."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(3).permutation(len(labels))
    return (images[order] / 16).astype("float32"), labels[order].astype("int64")


def build() -> Any:
    """A small network, the same in all trainers."""
    paddle.seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def arrays(model: Any) -> dict[str, Any]:
    """The model's state as a checkpoint holds it."""
    return {name: value.numpy() for name, value in model.state_dict().items()}


def restore(model: Any, saved: edl.Checkpoint) -> None:
    """The state of a checkpoint."""
    model.set_state_dict({name: paddle.to_tensor(one) for name, one in saved.arrays().items()})


def save(out: Path, model: Any, steps: int) -> None:
    """Saves a model, unless the newest checkpoint is of one with more steps behind it."""
    newest = edl.latest_checkpoint(out)
    if newest is None or newest.step <= steps:
        edl.save_checkpoint(out, arrays(model), step=steps)


def accuracy(model: Any, x: Any, y: Any) -> float:
    """Share of images that are told right."""
    return float((model(paddle.to_tensor(x)).argmax(axis=1).numpy() == y).mean())


def train(out: Path, epochs: int) -> None:
    """Trains until the master says that all is done."""
    images, labels = digits()
    model = build()
    saved, steps = edl.latest_checkpoint(out), 0
    if saved is not None:
        restore(model, saved)
        steps = saved.step
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    entropy = nn.CrossEntropyLoss()
    data = edl.from_arrays("digits", images[:-TEST], labels[:-TEST])
    loop = edl.batches(data, BATCH, epochs=epochs, shuffle_seed=1, task_records=BATCH)
    for x, y in loop:
        steps += 1
        loss = entropy(model(paddle.to_tensor(x)), paddle.to_tensor(y))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if steps % SAVE_EVERY == 0:
            save(out, model, steps)
    save(out, model, steps)
    right = accuracy(model, images[-TEST:], labels[-TEST:])
    print(f"test accuracy {right:.3f} after {steps} steps")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Handwritten digits, elastic, in PaddlePaddle.")
    parser.add_argument("--out", type=Path, default=Path("build/paddle-digits"))
    parser.add_argument("--epochs", type=int, default=15)
    asked = parser.parse_args()
    train(asked.out, asked.epochs)


if __name__ == "__main__":
    main()
