"""The interface between a framework and synchronous training: gradients, and the state for newcomers.

Each trainer has one replica. All replicas hold the same parameters after every step, because all
apply the same gradient (decision 0011).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Micro:
    """The identity of a micro-batch in the job, independent of the member that computes it."""

    step: int
    """Index of its step, from 0."""
    index: int
    """Its index in the step, from 0."""
    seed: int
    """Seed for random numbers, such as dropout; different for any two micro-batches of a job."""


class State(NamedTuple):
    """The complete state of a replica: a newcomer that loads it continues like the others."""

    arrays: dict[str, np.ndarray]
    """Parameters, buffers and the optimizer's accumulators, by name; any shape and dtype."""
    extra: dict[str, Any]
    """Everything that is not an array, such as the step of a learning-rate schedule; JSON."""


class GroupModel(Protocol):
    """One trainer's copy of the model. Called by one thread at a time."""

    size: int
    """Number of values in the gradient, the same in all trainers."""

    def write_gradient(self, flat: np.ndarray) -> None:
        """Replaces the gradient with an array of `size` float32 numbers."""
        ...

    def step(self, scale: float) -> None:
        """Applies the gradient with the learning rate times `scale`, and clears it."""
        ...

    def clear(self) -> None:
        """Drops the gradient, because the step is repeated or skipped."""
        ...

    def state(self) -> State:
        """Returns the state after the newest step; arrays may be views that are valid until the next step."""
        ...

    def load(self, state: State) -> None:
        """Loads a state.

        Raises:
            CheckpointError: The state belongs to another model; the message names the array that
                differs.
        """
        ...


class Replica(GroupModel, Protocol):
    """A model whose gradient members sum as an array of float32 numbers, over `edl.collective`."""

    def backward(self, records: Any, weight: float, micro: Micro) -> Mapping[str, float]:
        """Adds `weight` times the gradient of the mean loss over these records.

        Args:
            records: A batch, as the data set returns it.
            weight: Share of these records in the step; the weights of a step add up to 1.
            micro: Identity of the micro-batch.

        Returns:
            Means over the records, by name; "loss" is one of them.
        """
        ...

    def read_gradient(self, out: np.ndarray) -> None:
        """Copies the gradient into an array of `size` float32 numbers; zeros if there is none."""
        ...
