"""Models for tests of parameter servers, in plain numpy: small, and quickly trained."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from edl.servers import Gradients, Lookup, Table

Arrays = dict[str, Any]


class Line:
    """y = w x + b by least squares: nothing that a test has to wait for."""

    def __init__(
        self,
        dim: int = 3,
        rate: float = 0.1,
        kind: str = "sgd",
        before: Callable[["Line"], object] = lambda _: None,
    ) -> None:
        self.dim, self.rate, self.kind, self.before = dim, rate, kind, before
        self.dense: Arrays = {}
        self.first: Arrays = {}
        """As they were loaded first."""
        self.losses: list[float] = []

    def initial(self) -> Arrays:
        """Zeros."""
        return {"w": np.zeros(self.dim), "b": np.zeros(1, np.float32)}

    def tables(self) -> dict[str, Table]:
        """None."""
        return {}

    def optimizer(self) -> dict[str, Any]:
        """As asked for."""
        return {"kind": self.kind, "learning_rate": self.rate}

    def load(self, dense: Mapping[str, Any]) -> None:
        """Copies."""
        self.dense = {name: array.copy() for name, array in dense.items()}
        self.first = self.first or self.dense

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """Of the mean square error."""
        del lookup
        self.before(self)
        x, y = records
        error = x @ self.dense["w"] + self.dense["b"] - y
        self.losses.append(float((error**2).mean()))
        dense = {"w": 2 * x.T @ error / len(y), "b": 2 * error.mean(keepdims=True)}
        return Gradients(dense, {}, {"loss": self.losses[-1]})


class Alone(Line):
    """The same with exchange switched off: it trains on its own parameters."""

    def load(self, dense: Mapping[str, Any]) -> None:
        """Takes nothing over."""
        own = self.dense or {name: np.zeros_like(array) for name, array in dense.items()}
        super().load(own)

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """Moves by itself."""
        gradients = super().gradients(records, lookup)
        for name, gradient in gradients.dense.items():
            self.dense[name] -= self.rate * gradient
        return gradients


class Words(Line):
    """Each record is a word, and its y the word's own number: an embedding of one dimension."""

    def initial(self) -> Arrays:
        """Nothing dense but a bias."""
        return {"b": np.zeros(1, np.float32)}

    def tables(self) -> dict[str, Table]:
        """One number for each word."""
        return {"words": Table(1, 0.01, 3)}

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """Of the words in the batch."""
        self.before(self)
        words, y = records
        ids, places = np.unique(words, return_inverse=True)
        rows = lookup("words", ids)
        error = rows[places, 0] + self.dense["b"] - y
        self.losses.append(float((error**2).mean()))
        moved = np.zeros_like(rows)
        np.add.at(moved[:, 0], places, 2 * error / len(y))
        dense = {"b": 0.1 * error.mean(keepdims=True)}
        return Gradients(dense, {"words": (ids, moved)}, {"loss": self.losses[-1]})


def points(count: int = 400, dim: int = 3, seed: int = 0) -> tuple[Any, Any]:
    """Points on a plane: w = 1, 2, 3, ..., b = 0.5."""
    x = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    return x, (x @ np.arange(1, dim + 1) + 0.5).astype(np.float32)


def words(count: int = 400, seed: int = 0) -> tuple[Any, Any]:
    """Words, some of them with large ids, and their numbers between -1 and 1."""
    chosen = np.random.default_rng(seed).integers(0, 20, count)
    return chosen.astype(np.int64) ** 7, np.linspace(-1, 1, 20, dtype=np.float32)[chosen]
