"""The dense parameters of one server as one vector, with their optimizer slots. Pure."""

import numpy as np

from pserver import optimizers
from pserver.errors import FullError
from pserver.memory import Block, Floats, Views, zeros
from pserver.optimizers import Optimizer


class Vector:
    """A flat vector of parameters with optimizer slots; `count` is the number of its updates."""

    def __init__(self, values: Floats, optimizer: Optimizer, views: Views) -> None:
        """Creates the vector from values, which it owns from now on, and its slots.

        Raises:
            FullError: The memory limit would be exceeded.
        """
        self._optimizer = optimizer
        self.count = 0
        self._values = Block(np.ascontiguousarray(values, dtype=np.float32), views)
        try:
            self._slots = zeros((optimizer.slots, len(values)), views)
        except FullError:
            self._values.drop()
            raise
        self._slots.array += np.float32(optimizer.start)

    @property
    def values(self) -> Floats:
        """The current values; an open view keeps the array unchanged."""
        return self._values.array

    @property
    def slots(self) -> Floats:
        """The current slots, one row each."""
        return self._slots.array

    @property
    def nbytes(self) -> int:
        """Bytes of values and slots."""
        return self.values.nbytes + self.slots.nbytes

    def restore(self, slots: Floats, count: int) -> None:
        """Restores slots and count from a checkpoint, before any update."""
        self._slots.array[...] = slots
        self.count = count

    def make_writable(self) -> None:
        """Copies arrays that a view holds, so that they may be written.

        Raises:
            FullError: The memory limit does not allow a copy.
        """
        self._values.make_writable()
        self._slots.make_writable()

    def update(self, gradient: Floats, scale: float, norm: float | None = None) -> None:
        """Applies one gradient; call `make_writable` before.

        Args:
            gradient: As long as the values.
            scale: Factor of the learning rate.
            norm: Norm of the whole gradient at all servers; needed with `clip_norm`.
        """
        self.count += 1
        optimizers.dense(
            self._optimizer,
            self.values,
            self.slots,
            gradient,
            scale=scale,
            count=self.count,
            norm=norm,
        )

    def drop(self) -> None:
        """Frees the memory; open views still hold their arrays."""
        self._values.drop()
        self._slots.drop()
