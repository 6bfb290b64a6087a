"""A small model in numpy: softmax regression with momentum, as an `edl.sync` replica."""

import zlib
from collections.abc import Mapping
from typing import Any

import edl
import numpy as np
from edl.sync import Micro, Replica, State
from edl.sync.parts import ArrayGroup
from numpy.typing import NDArray

Floats = NDArray[np.float32]
FEATURES, CLASSES = 16, 4


def points(records: int = 512, seed: int = 5) -> tuple[Floats, NDArray[np.int64]]:
    """Points around one centre for each class: a working model classifies most correctly."""
    chance = np.random.default_rng(seed)
    labels = chance.integers(0, CLASSES, records)
    centres = chance.normal(size=(CLASSES, FEATURES))
    return (centres[labels] + chance.normal(size=(records, FEATURES))).astype(np.float32), labels


def data(records: int = 512, name: str = "points") -> edl.Dataset:
    """The same in every trainer."""
    return edl.from_arrays(name, *points(records))


class InParts:
    """Base of replicas that newcomers can get in parts; see `edl.sync.parts.PartedReplica`."""

    size: int

    def state(self) -> State:
        """As in `Replica`; the arrays are the replica's own."""
        raise NotImplementedError

    def groups(self) -> list[ArrayGroup]:
        """As in `PartedReplica`."""
        names = tuple(self.state().arrays)
        return [ArrayGroup(names, self.size, 4 * len(names))]

    def read_slice(self, name: str, start: int, stop: int) -> Floats:
        """As in `PartedReplica`."""
        return self.state().arrays[name].reshape(-1)[start:stop].copy()

    def write_slice(self, name: str, start: int, elements: Floats) -> None:
        """As in `PartedReplica`."""
        self.state().arrays[name].reshape(-1)[start : start + len(elements)] = elements

    def rest(self) -> State:
        """As in `PartedReplica`."""
        return State({}, {})

    def load_rest(self, rest: State) -> None:
        """As in `PartedReplica`."""


class Softmax(InParts):
    """A replica that starts with random weights by `seed`, so that newcomers differ at first."""

    def __init__(self, seed: int = 0, rate: float = 0.2, features: int = FEATURES) -> None:
        chance = np.random.default_rng(seed)
        self.weights: Floats = (chance.normal(size=(features + 1, CLASSES)) * 0.1).astype("f4")
        self.speed: Floats = np.zeros_like(self.weights)
        self._gradient: Floats = np.zeros_like(self.weights)
        self._rate = rate
        self.size = self.weights.size
        self.scales: list[float] = []

    def backward(self, records: Any, weight: float, micro: Micro) -> Mapping[str, float]:
        """As in `Replica`."""
        assert micro.step >= 0
        inputs, labels = records
        ones = np.ones((len(inputs), 1), np.float32)
        inputs = np.concatenate([inputs, ones], axis=1)
        scores = inputs @ self.weights
        scores -= scores.max(axis=1, keepdims=True)
        odds = np.exp(scores)
        odds /= odds.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = float(-np.log(odds[rows, labels] + 1e-12).mean())
        right = float((odds.argmax(axis=1) == labels).mean())
        odds[rows, labels] -= 1
        self._gradient += (inputs.T @ odds * (weight / len(labels))).astype(np.float32)
        return {"loss": loss, "accuracy": right}

    def read_gradient(self, out: Floats) -> None:
        """As in `Replica`."""
        assert out.dtype == np.float32
        out[:] = self._gradient.reshape(-1)

    def write_gradient(self, flat: Floats) -> None:
        """As in `Replica`."""
        self._gradient[:] = flat.reshape(self.weights.shape)

    def step(self, scale: float) -> None:
        """As in `Replica`."""
        self.scales.append(scale)
        self.speed *= np.float32(0.9)
        self.speed += self._gradient
        self.weights -= np.float32(self._rate * scale) * self.speed
        self.clear()

    def clear(self) -> None:
        """As in `Replica`."""
        self._gradient[:] = 0

    def state(self) -> State:
        """As in `Replica`."""
        return State({"weights": self.weights, "speed": self.speed}, {})

    def load(self, state: State) -> None:
        """As in `Replica`."""
        shape = state.arrays["weights"].shape
        if shape != self.weights.shape:
            raise edl.CheckpointError(f"weights is {shape}, here {self.weights.shape}")
        self.weights[:], self.speed[:] = state.arrays["weights"], state.arrays["speed"]


class Noting:
    """A replica that records which records each micro-batch had."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.size = replica.size
        self._noted: list[list[int]] = []

    def noted(self) -> list[list[int]]:
        """Step, index in it, checksum of its inputs and labels; since the last call."""
        noted, self._noted = self._noted, []
        return noted

    def backward(self, records: Any, weight: float, micro: Micro) -> Mapping[str, float]:
        """As in `Replica`."""
        inputs, labels = records
        digest = zlib.crc32(labels.tobytes(), zlib.crc32(inputs.tobytes()))
        self._noted.append([micro.step, micro.index, digest])
        return self._replica.backward(records, weight, micro)

    def read_gradient(self, out: Floats) -> None:
        """As in `Replica`."""
        self._replica.read_gradient(out)

    def write_gradient(self, flat: Floats) -> None:
        """As in `Replica`."""
        self._replica.write_gradient(flat)

    def step(self, scale: float) -> None:
        """As in `Replica`."""
        self._replica.step(scale)

    def clear(self) -> None:
        """As in `Replica`."""
        self._replica.clear()

    def state(self) -> State:
        """As in `Replica`."""
        return self._replica.state()

    def load(self, state: State) -> None:
        """As in `Replica`."""
        self._replica.load(state)


class Counting(InParts):
    """A replica whose parameters count how often it was trained on each record of `numbers`."""

    def __init__(self, records: int) -> None:
        self.size = records
        self.counts: Floats = np.zeros(records, np.float32)
        self._gradient: Floats = np.zeros(records, np.float32)

    def backward(self, records: Any, weight: float, micro: Micro) -> Mapping[str, float]:
        """As in `Replica`; each record counts one, whatever the batch."""
        assert 0 < weight <= 1
        assert micro.step >= 0
        np.add.at(self._gradient, records, np.float32(1))
        return {"loss": 1.0}

    def read_gradient(self, out: Floats) -> None:
        """As in `Replica`."""
        out[:] = self._gradient

    def write_gradient(self, flat: Floats) -> None:
        """As in `Replica`."""
        self._gradient[:] = flat

    def step(self, scale: float) -> None:
        """As in `Replica`."""
        assert scale == 1.0
        self.counts += self._gradient
        self.clear()

    def clear(self) -> None:
        """As in `Replica`."""
        self._gradient[:] = 0

    def state(self) -> State:
        """As in `Replica`."""
        return State({"counts": self.counts}, {})

    def load(self, state: State) -> None:
        """As in `Replica`."""
        self.counts[:] = state.arrays["counts"]


def numbers(records: int) -> edl.Dataset:
    """A data set whose records are their own numbers."""
    return edl.from_arrays("points", np.arange(records))
