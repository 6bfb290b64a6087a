"""The interface of framework adapters; EDL has adapters for PaddlePaddle, torch and plain numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edl.servers.worker import Worker
from edl.sync.replica import Replica

Lookup = Callable[[str, Any], Any]
"""(table, unique ids) -> rows in the order of the ids."""


class Adapter(Protocol):
    """Operations on a model other than training."""

    def evaluate(self, records: Any, lookup: Lookup | None = None) -> dict[str, float]:
        """Returns the loss, the user's metrics and the sums of additive metrics, as means over one batch."""
        ...

    def finish(self, reported: Mapping[str, float]) -> dict[str, float]:
        """Computes the metrics' values by name from means over all records; see `edl.model.metrics`."""
        ...

    def predict(self, records: Any, lookup: Lookup | None = None) -> dict[str, np.ndarray]:
        """Returns predictions for one batch; the first axis of each array is records."""
        ...

    def export(self, folder: Path, lookup: Lookup | None = None) -> None:
        """Writes the model into an empty folder."""
        ...

    def parameters(self) -> dict[str, np.ndarray]:
        """Returns copies of the model's arrays by name, without embeddings stored on the servers."""
        ...

    def load_parameters(self, arrays: Mapping[str, Any], origin: str) -> None:
        """Loads parameters into the model.

        Args:
            arrays: Name -> array.
            origin: Source of the arrays, for error messages.

        Raises:
            CheckpointError: The arrays belong to another model; the message names the difference.
        """
        ...


class ReplicaAdapter(Replica, Adapter, Protocol):
    """A replica for synchronous training.

    A replica whose framework has its own process groups may have a method `train`. This method is then
    called instead of `edl.sync.train`, with the same arguments except the replica.
    """


class WorkerAdapter(Worker, Adapter, Protocol):
    """A worker for training with parameter servers."""


class AdapterModule(Protocol):
    """A module that adapts models of one framework."""

    def replica(self, user_model: Any, user_code: Any) -> ReplicaAdapter:
        """Returns a replica for the object returned by `model()`."""
        ...

    def worker(self, user_model: Any, user_code: Any, seed: int) -> WorkerAdapter:
        """Returns a worker for the object returned by `model()`.

        Args:
            user_model: The object returned by `model()`.
            user_code: The functions of the user's file.
            seed: Seed of initial embedding rows.
        """
        ...
