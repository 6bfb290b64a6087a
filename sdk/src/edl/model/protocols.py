"""What the adapter of a framework can do; those of PaddlePaddle and of plain numpy are ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edl.servers.worker import Worker
from edl.sync.replica import Replica

Lookup = Callable[[str, Any], Any]
"""(table, unique ids) -> rows; as `Worker.gradients` gets it."""


class Adapter(Protocol):
    """What is needed of a model beside its training."""

    def evaluate(self, records: Any, lookup: Lookup | None = None) -> dict[str, float]:
        """Means over one batch: the loss, and the user's metrics."""
        ...

    def predict(self, records: Any, lookup: Lookup | None = None) -> dict[str, np.ndarray]:
        """What the model says of one batch; the first axis of each array is records."""
        ...

    def export(self, folder: Path, lookup: Lookup | None = None) -> None:
        """Writes the model into an empty folder."""
        ...

    def parameters(self) -> dict[str, np.ndarray]:
        """Copies of the model's arrays, by name; embeddings at the servers are not among them."""
        ...

    def take(self, arrays: Mapping[str, Any], origin: str) -> None:
        """Takes such arrays over.

        Raises:
            CheckpointError: They are another model's; the text names `origin` and what differs.
        """
        ...


class ReplicaAdapter(Replica, Adapter, Protocol):
    """For synchronous training."""


class WorkerAdapter(Worker, Adapter, Protocol):
    """For training with parameter servers."""


class Home(Protocol):
    """A module that adapts models of one framework."""

    def replica(self, made: Any, calls: Any) -> ReplicaAdapter:
        """A replica of what `model()` returned."""
        ...

    def worker(self, made: Any, calls: Any, seed: int) -> WorkerAdapter:
        """A worker of it; rows of its embeddings depend on the seed."""
        ...
