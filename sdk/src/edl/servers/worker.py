"""What a framework gives for asynchronous training: how to make gradients, and of what.

Parameters are float32 at the servers. Dense ones are known by name and pulled before each batch;
sparse ones are tables of rows (embeddings), of which a batch looks up those it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Lookup = Callable[[str, Ids], Floats]
"""(table, unique ids) -> their rows, in the order of the ids."""


class Table(NamedTuple):
    """A sparse parameter: a row for each id, made when it is first asked for."""

    dim: int
    """Numbers in a row."""
    init: float = 0.01
    """Rows begin uniformly between -init and +init."""
    seed: int = 0
    """With the id it decides how a row begins, whoever asks first."""


class Gradients(NamedTuple):
    """What one batch says; gradients are of the mean loss over its records."""

    dense: Mapping[str, Any]
    """By name, in the shapes of `Worker.initial`; a missing one counts as zeros."""
    sparse: Mapping[str, tuple[Any, Any]]
    """Table -> unique ids (int64), and a row of gradients (float32) for each."""
    metrics: Mapping[str, float]
    """Means over the records, "loss" among them."""


class Worker(Protocol):
    """Computes gradients; knows nothing of servers. Called by one thread."""

    def initial(self) -> Mapping[str, Any]:
        """Dense parameters as they begin, by name: arrays of floating point numbers.

        Their shapes must be the same in every trainer; the values of the first trainer count.
        """
        ...

    def tables(self) -> Mapping[str, Table]:
        """Sparse parameters; may be empty."""
        ...

    def optimizer(self) -> dict[str, Any]:
        """What the servers do with gradients, such as {"kind": "adam", "learning_rate": 0.001}.

        | kind | beside learning_rate (default) |
        |---|---|
        | sgd | |
        | momentum | momentum (0.9), nesterov (False) |
        | adagrad | initial (0.0), epsilon (1e-6) |
        | adam | beta1 (0.9), beta2 (0.999), epsilon (1e-8) |
        """
        ...

    def load(self, dense: Mapping[str, Floats]) -> None:
        """Takes over dense parameters; the arrays may change after the call, so copy them."""
        ...

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """Gradients over a batch, as `edl.batches` gives it.

        May be called again with the same batch, after `load`: servers refuse gradients that are
        too old.
        """
        ...
