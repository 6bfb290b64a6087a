"""What a framework gives for synchronous training: gradients, and the state that newcomers need.

One replica lives in each trainer. All replicas hold the same parameters after every step, because
all apply the same gradient; decision 0011.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Micro:
    """Which micro-batch of the job it is: the same for whoever computes it."""

    step: int
    """The step that it is part of; from 0."""
    index: int
    """Its place in the step; from 0."""
    seed: int
    """For whatever is random in it, such as dropout: differs between any two of one job."""


class State(NamedTuple):
    """All that a newcomer needs to go on like the others."""

    arrays: dict[str, np.ndarray]
    """Parameters, buffers and the optimizer's accumulators, by name; any shape and dtype."""
    extra: dict[str, Any]
    """What is no array, such as the place in a learning-rate schedule; must be JSON."""


class Replica(Protocol):
    """One trainer's copy of the model. Called by one thread at a time."""

    size: int
    """Of the gradient: float32 numbers, the same for all trainers."""

    def backward(self, records: Any, weight: float, micro: Micro) -> Mapping[str, float]:
        """Adds `weight` times the gradient of the mean loss over these records.

        Args:
            records: A batch, as the data set makes it.
            weight: Share of these records in the step's; the weights of a step sum up to 1.
            micro: Which micro-batch it is.

        Returns:
            Means over the records, "loss" among them.
        """
        ...

    def read_gradient(self, out: np.ndarray) -> None:
        """Copies the gradient into an array of `size` float32 numbers; zeros where there is none."""
        ...

    def write_gradient(self, flat: np.ndarray) -> None:
        """Takes such an array as its gradient."""
        ...

    def step(self, scale: float) -> None:
        """Applies the gradient with the learning rate times `scale`, and clears it."""
        ...

    def clear(self) -> None:
        """Drops the gradient: the step is done again, or left out."""
        ...

    def state(self) -> State:
        """The state after the newest step; arrays may be views, used before the next step."""
        ...

    def load(self, state: State) -> None:
        """Takes a state over.

        Raises:
            CheckpointError: It is of another model; the text names the array that differs.
        """
        ...
