"""The interface of a framework's adapter; EDL has adapters for PaddlePaddle, torch and plain numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edl.servers.worker import Worker
from edl.sync.replica import Replica

Lookup = Callable[[str, Any], Any]
"""(table, unique ids) -> rows, as in `Worker.gradients`."""


class Adapter(Protocol):
    """Operations on a model other than training."""

    def evaluate(self, records: Any, lookup: Lookup | None = None) -> dict[str, float]:
        """Returns means over one batch: the loss, the user's metrics, and sums of additive ones."""
        ...

    def finish(self, reported: Mapping[str, float]) -> dict[str, float]:
        """Returns values by name of such means over all records (`edl.model.metrics`)."""
        ...

    def predict(self, records: Any, lookup: Lookup | None = None) -> dict[str, np.ndarray]:
        """Returns predictions for one batch; the first axis of each array is records."""
        ...

    def export(self, folder: Path, lookup: Lookup | None = None) -> None:
        """Writes the model into an empty folder."""
        ...

    def parameters(self) -> dict[str, np.ndarray]:
        """Returns copies of the model's arrays by name, without embeddings at the servers."""
        ...

    def load_parameters(self, arrays: Mapping[str, Any], origin: str) -> None:
        """Loads arrays by name into the model.

        Raises:
            CheckpointError: They belong to another model; the text names `origin` and the difference.
        """
        ...


class ReplicaAdapter(Replica, Adapter, Protocol):
    """A replica for synchronous training.

    One with a method `train` trains by it instead of `edl.sync.train`, with the same arguments but
    for itself: its framework has process groups of its own.
    """


class WorkerAdapter(Worker, Adapter, Protocol):
    """A worker for training with parameter servers."""


class AdapterModule(Protocol):
    """A module that adapts models of one framework."""

    def replica(self, user_model: Any, user_code: Any) -> ReplicaAdapter:
        """Returns a replica of the object that `model()` returned."""
        ...

    def worker(self, user_model: Any, user_code: Any, seed: int) -> WorkerAdapter:
        """Returns a worker of the object that `model()` returned; initial rows of its embeddings depend on the seed."""
        ...
