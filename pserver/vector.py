"""All dense parameters of one server, one after the other, and the slots of the optimizer."""

import numpy as np

from pserver import optimizers
from pserver.errors import FullError
from pserver.memory import Block, Floats, Views, zeros
from pserver.optimizers import Optimizer


class Vector:
    """Values and slots; `count` says how often they were updated."""

    def __init__(self, values: Floats, optimizer: Optimizer, views: Views) -> None:
        """Takes over values; slots begin as the optimizer says.

        Raises:
            FullError: There is no room.
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
        """As they are now; a view that is open keeps the array so."""
        return self._values.array

    @property
    def slots(self) -> Floats:
        """A row for each slot."""
        return self._slots.array

    @property
    def nbytes(self) -> int:
        """Of values and slots."""
        return self.values.nbytes + self.slots.nbytes

    def restore(self, slots: Floats, count: int) -> None:
        """Slots as they were saved; before any update."""
        self._slots.array[...] = slots
        self.count = count

    def free(self) -> None:
        """Makes sure that it may be written.

        Raises:
            FullError: There is no room for a copy.
        """
        self._values.free()
        self._slots.free()

    def update(self, gradient: Floats, scale: float) -> None:
        """One step; `free` came before."""
        self.count += 1
        optimizers.dense(
            self._optimizer, self.values, self.slots, gradient, scale=scale, count=self.count
        )

    def drop(self) -> None:
        """It is not needed any more."""
        self._values.drop()
        self._slots.drop()
