"""Models in PaddlePaddle for facts about its adapter: files as users write them, made of parts."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from edl import model as models

HEAD = """
import paddle
from paddle import nn
"""
MODEL = """
def model():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
"""
NORMED = """
def model():
    return nn.Sequential(
        nn.Linear(6, 8, bias_attr=False),
        nn.BatchNorm1D(8),
        nn.Tanh(),
        nn.Dropout(0.3),
        nn.Linear(8, 3),
    )
"""
LOSS = """
def loss(outputs, labels):
    return nn.functional.cross_entropy(outputs, labels)
"""
SGD = "paddle.optimizer.SGD(0.1, parameters=parameters)"
OPTIMIZERS = (
    SGD,
    "paddle.optimizer.Momentum(0.1, parameters=parameters)",
    "paddle.optimizer.Adam(0.01, parameters=parameters)",
    "paddle.optimizer.AdamW(0.01, parameters=parameters, weight_decay=0.1)",
    "paddle.optimizer.Adam(paddle.optimizer.lr.StepDecay(0.01, 2), parameters=parameters)",
    """paddle.optimizer.Momentum(
        0.1,
        parameters=[{'params': parameters[:2]}, {'params': parameters[2:], 'learning_rate': 0.5}],
    )""",
)


def file(*parts: str, optimizer: str = SGD) -> models.Model:
    """A user's file of these parts; those that are missing are the usual ones."""
    usual = {"def model": MODEL, "def loss": LOSS}
    defaults = [text for begin, text in usual.items() if not any(begin in part for part in parts)]
    optimizer_text = f"\ndef optimizer(parameters):\n    return {optimizer}\n"
    if any("def optimizer" in part for part in parts):
        optimizer_text = ""
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file_:
        file_.write("".join((HEAD, *defaults, *parts, optimizer_text)))
    return models.load(file_.name)


def batch(size: int = 16, seed: int = 0) -> dict[str, Any]:
    """Records as an .npz file gives them."""
    chance = np.random.default_rng(seed)
    inputs = chance.normal(size=(size, 6)).astype(np.float32)
    return {"inputs": inputs, "labels": chance.integers(0, 3, size)}


def part(records: Mapping[str, Any], start: int, end: int) -> dict[str, Any]:
    """Some of a batch's records."""
    return {name: array[start:end] for name, array in records.items()}


class Plain:
    """The same file trained as PaddlePaddle's documentation does it."""

    def __init__(self, model: models.Model, seed: int) -> None:
        paddle.seed(seed)
        self.layer = model.functions["model"]()
        self.layer.train()
        self.loss = model.functions["loss"]
        self.optimizer = model.functions["optimizer"](self.layer.parameters())

    def gradient(self, records: Mapping[str, Any], seed: int) -> float:
        """Forward and backward."""
        paddle.seed(seed)
        inputs, labels = (paddle.to_tensor(records[name]) for name in ("inputs", "labels"))
        loss = self.loss(self.layer(inputs), labels)
        loss.backward()
        return float(loss)

    def step(self) -> None:
        """The optimizer's, and the schedule's."""
        self.optimizer.step()
        self.optimizer.clear_grad()
        rate = self.optimizer._learning_rate  # noqa: SLF001 - no public name says it
        if not isinstance(rate, float):
            rate.step()

    def arrays(self) -> dict[str, Any]:
        """Parameters and buffers."""
        return {name: array.numpy() for name, array in self.layer.state_dict().items()}


def far(first: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The largest difference of two sets of arrays of the same names."""
    assert first.keys() == other.keys(), (sorted(first), sorted(other))
    return max(float(np.abs(first[name] - other[name]).max()) for name in first)


def refusal(act: Callable[[], object], kind: type[Exception] = models.ModelError) -> str:
    """The one line by which an act is refused."""
    try:
        act()
    except kind as error:
        text = str(error)
        assert "\n" not in text, text
        return text
    raise AssertionError(f"no {kind.__name__}")


def folder() -> Path:
    """A new one; the process that made it removes it."""
    path = tempfile.mkdtemp(dir=_HOME.name)
    return Path(path)


_HOME = tempfile.TemporaryDirectory()
tempfile.tempdir = _HOME.name
