"""A classifier of handwritten digits in PaddlePaddle; the loop is elastic by `edl.batches`.

    pip install paddlepaddle==3.3.1 scikit-learn edl-sdk
    edl run -n 2 examples/paddle_digits/train_paddle.py --out build/paddle-digits

Each trainer trains its own model on its own tasks and saves it at intervals, unless the newest
checkpoint has more steps; a trainer that joins later starts from the newest checkpoint.
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
"""Steps of a trainer between two checkpoints."""


def digits() -> tuple[Any, Any]:
    """Returns scikit-learn's 1 797 images of 64 pixels, in the same order in all trainers."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(3).permutation(len(labels))
    return (images[order] / 16).astype("float32"), labels[order].astype("int64")


def build() -> Any:
    """Returns a small network with the same initial weights in all trainers."""
    paddle.seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def arrays(model: Any) -> dict[str, Any]:
    """Returns the model's state as arrays for a checkpoint."""
    return {name: value.numpy() for name, value in model.state_dict().items()}


def restore(model: Any, checkpoint: edl.Checkpoint) -> None:
    """Loads the state of a checkpoint into the model."""
    model.set_state_dict(
        {name: paddle.to_tensor(array) for name, array in checkpoint.arrays().items()}
    )


def save(out: Path, model: Any, steps: int) -> None:
    """Saves a model, unless the newest checkpoint has more steps."""
    newest = edl.latest_checkpoint(out)
    if newest is None or newest.step <= steps:
        edl.save_checkpoint(out, arrays(model), step=steps)


def accuracy(model: Any, x: Any, y: Any) -> float:
    """Returns the share of correct predictions."""
    return float((model(paddle.to_tensor(x)).argmax(axis=1).numpy() == y).mean())


def train(out: Path, epochs: int) -> None:
    """Trains until the job is done."""
    images, labels = digits()
    model = build()
    checkpoint, steps = edl.latest_checkpoint(out), 0
    if checkpoint is not None:
        restore(model, checkpoint)
        steps = checkpoint.step
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
    args = parser.parse_args()
    train(args.out, args.epochs)


if __name__ == "__main__":
    main()
