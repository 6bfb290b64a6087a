"""The interface between a framework and asynchronous training.

The servers store parameters as float32. Dense parameters have names and are pulled before each batch;
sparse parameters are tables of rows (embeddings), and each batch looks up only the rows it needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edl_protocol.pserver import Table

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Lookup = Callable[[str, Ids], Floats]
"""(table, unique ids) -> rows in the order of the ids."""

ROW_OPTIONS = ("admit_after", "evict_after", "max_rows", "evict")
"""The options of `Table` that control which rows it keeps."""


class Gradients(NamedTuple):
    """Gradients of the mean loss over the records of one batch."""

    dense: Mapping[str, Any]
    """Name -> gradient, in the shapes of `Worker.initial`; missing ones count as zeros."""
    sparse: Mapping[str, tuple[Any, Any]]
    """Table -> unique ids (int64), and one row of gradients (float32) per id."""
    metrics: Mapping[str, float]
    """Name -> mean over the records, including "loss"."""


class Worker(Protocol):
    """Computes gradients; knows nothing of the servers, and is called by one thread."""

    def initial(self) -> Mapping[str, Any]:
        """Returns the initial dense parameters, as name -> floating-point array.

        The shapes must be the same in every trainer; the servers use the values of the first trainer.
        """
        ...

    def tables(self) -> Mapping[str, Table]:
        """Returns name -> sparse parameter; may be empty."""
        ...

    def optimizer(self) -> dict[str, Any]:
        """Returns the servers' optimizer, for example {"kind": "adam", "learning_rate": 0.001}.

        | kind | options in addition to learning_rate, with defaults |
        |---|---|
        | sgd | |
        | momentum | momentum (0.9), nesterov (False) |
        | adagrad | initial (0.0), epsilon (1e-6) |
        | adam | beta1 (0.9), beta2 (0.999), epsilon (1e-8) |

        All kinds have these options, which are off by default:

        | option | effect |
        |---|---|
        | weight_decay | decoupled: values shrink by learning rate x weight_decay at each update |
        | clip_norm | maximum norm of a batch's gradient, over all parameters and servers |
        | clip_value | maximum absolute value of an element; cannot be combined with clip_norm |
        | schedule | changes the learning rate by version, see below |

        A schedule has a kind, warmup (default 0 versions) and start (default 0.0, the factor at version
        0). After the warm-up, the factor is constant ("constant"), is multiplied by `by` (0.1) every
        `every` versions ("step"), decays at the same rate but continuously ("exponential"), or
        falls to `lowest` (0.0) within `versions` ("cosine").
        """
        ...

    def load(self, dense: Mapping[str, Floats]) -> None:
        """Loads dense parameters; must copy them, because the arrays may change after the call."""
        ...

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """Returns the gradients over a batch of `edl.batches`.

        After another `load`, it may be called again with the same batch, because servers reject
        gradients that are too stale.
        """
        ...


def global_norm(arrays: Sequence[Any]) -> float:
    """Returns the Euclidean norm of all arrays together, by which gradients are clipped."""
    squares = (np.einsum("i,i->", flat, flat, dtype=np.float64) for flat in map(np.ravel, arrays))
    return math.sqrt(sum(float(square) for square in squares))
