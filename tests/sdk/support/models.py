"""Models and data for tests of the commands, in plain numpy; small, and slow where time matters."""

from pathlib import Path

import numpy as np

SOFTMAX = '''
"""A linear classifier of 8 numbers."""

import time

import numpy as np

PAUSE_S = 0.002


class Net:
    """Its gradients are short enough to be written down."""

    def __init__(self):
        draw = np.random.default_rng(0)
        self.parameters = {
            "w": draw.normal(0, 0.1, (8, 3)).astype("float32"),
            "b": np.zeros(3, "float32"),
        }

    def forward(self, inputs):
        time.sleep(PAUSE_S)
        self.inputs = inputs
        return inputs @ self.parameters["w"] + self.parameters["b"]

    def gradients(self, slope):
        return {"w": self.inputs.T @ slope, "b": slope.sum(0)}


def model():
    return Net()


def loss(outputs, labels):
    shifted = np.exp(outputs - outputs.max(1, keepdims=True))
    chances = shifted / shifted.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    mean = float(-np.log(chances[rows, labels] + 1e-9).mean())
    chances[rows, labels] -= 1
    return mean, (chances / len(labels)).astype("float32")


def optimizer(parameters):
    return {"kind": "momentum", "learning_rate": 0.05}


def metrics():
    return {"accuracy": lambda outputs, labels: (outputs.argmax(1) == labels).mean()}
'''


def write_data(folder: Path, *, train: int = 960, test: int = 200) -> None:
    """Writes train.npz and test.npz: three separable clusters of points."""
    draw = np.random.default_rng(1)
    centers = draw.normal(0, 2, (3, 8))
    for name, count in (("train", train), ("test", test)):
        labels = draw.integers(0, 3, count)
        inputs = (centers[labels] + draw.normal(0, 1, (count, 8))).astype("float32")
        np.savez(folder / f"{name}.npz", inputs=inputs, labels=labels)


def edit_model(folder: Path, old: str, new: str) -> None:
    """Replaces a text of model.py, wherever it is there."""
    path = folder / "model.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
