"""The interface between a framework and asynchronous training.

The servers store parameters as float32. Dense ones have names and are pulled before each batch;
sparse ones are tables of rows (embeddings), of which a batch looks up those it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edl_protocol.pserver import Table

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Lookup = Callable[[str, Ids], Floats]
"""(table, unique ids) -> their rows, in the order of the ids."""

ROW_OPTIONS = ("admit_after", "evict_after", "max_rows", "evict")
"""The options of `Table` that say which rows it keeps."""


class Gradients(NamedTuple):
    """Gradients of the mean loss over the records of one batch."""

    dense: Mapping[str, Any]
    """By name, in the shapes of `Worker.initial`; a missing one stands for zeros."""
    sparse: Mapping[str, tuple[Any, Any]]
    """Table -> unique ids (int64), and a row of gradients (float32) for each."""
    metrics: Mapping[str, float]
    """Means over the records, "loss" among them."""


class Worker(Protocol):
    """Computes gradients, independent of the servers. Called by one thread."""

    def initial(self) -> Mapping[str, Any]:
        """Returns the initial dense parameters: floating point arrays by name.

        Their shapes must be the same in every trainer; the servers use the first one's values.
        """
        ...

    def tables(self) -> Mapping[str, Table]:
        """Returns the sparse parameters; may be empty."""
        ...

    def optimizer(self) -> dict[str, Any]:
        """Returns the optimizer of the servers, such as {"kind": "adam", "learning_rate": 0.001}.

        | kind | beside learning_rate (default) |
        |---|---|
        | sgd | |
        | momentum | momentum (0.9), nesterov (False) |
        | adagrad | initial (0.0), epsilon (1e-6) |
        | adam | beta1 (0.9), beta2 (0.999), epsilon (1e-8) |

        All have these, off by default:

        | option | effect |
        |---|---|
        | weight_decay | decoupled: values shrink by learning rate x weight_decay at each update |
        | clip_norm | largest norm of the gradient of a batch, over all parameters and servers |
        | clip_value | largest absolute value of an element; excludes clip_norm |
        | schedule | changes the learning rate by version, see below |

        A schedule has a kind, and for all kinds warmup (0 versions) and start (0.0, the factor at
        version 0). After the warm-up: constant; step: times by (0.1) every `every` versions;
        exponential: the same without steps; cosine: down to lowest (0.0) in `versions`.
        """
        ...

    def load(self, dense: Mapping[str, Floats]) -> None:
        """Loads dense parameters; the arrays may change after the call, so copy them."""
        ...

    def gradients(self, records: Any, lookup: Lookup) -> Gradients:
        """Returns the gradients over a batch of `edl.batches`.

        May be called again with the same batch after `load`, because servers reject gradients
        that are too stale.
        """
        ...
