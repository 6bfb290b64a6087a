"""Accounting of array memory, and copy on write: arrays in an open view do not change.

Opening a view, for a checkpoint or a pinned version, copies nothing. A block that is written while a view
holds it is copied first. The old array is counted until the last view that holds it closes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pserver.errors import FullError

Floats = NDArray[np.float32]
Array = NDArray[Any]


class Memory:
    """Accounts for the bytes of arrays, with a limit. The rest of the process is not counted."""

    def __init__(self, most: int | None = None) -> None:
        """Starts with no bytes in use.

        Args:
            most: The limit in bytes; None for no limit.
        """
        self.used = 0
        self.most = most

    def reserve(self, size: int) -> None:
        """Counts bytes that are about to be allocated.

        Raises:
            FullError: The limit would be exceeded.
        """
        if self.most is not None and self.used + size > self.most:
            raise FullError(self.used + size - self.most)
        self.used += size

    def release(self, size: int) -> None:
        """Counts bytes as freed."""
        self.used -= size


class Views:
    """The open views, and the replaced arrays that they still hold."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.now = 0
        """Number of the newest view ever opened."""
        self._open: dict[int, list[tuple[int, Array]]] = {}
        """View -> the arrays that were replaced while it was the newest view: (newest view when the
        array was created, array)."""

    @property
    def newest(self) -> int:
        """Number of the newest open view; 0 if none is open."""
        return max(self._open, default=0)

    @property
    def held_bytes(self) -> int:
        """Bytes of arrays that only views hold."""
        return sum(
            array.nbytes for replaced_arrays in self._open.values() for _, array in replaced_arrays
        )

    def open(self) -> int:
        """Opens a view that holds all current blocks; returns its number."""
        self.now += 1
        self._open[self.now] = []
        return self.now

    def close(self, number: int) -> None:
        """Closes a view; closing it again has no effect."""
        replaced_arrays = self._open.pop(number, [])
        older = max((view for view in self._open if view < number), default=0)
        for created, array in replaced_arrays:
            if created < older:
                self._open[older].append((created, array))
            else:
                self.memory.release(array.nbytes)

    def replaced(self, created: int, array: Array) -> None:
        """Records that a block was copied because the newest view holds its old array."""
        self._open[self.newest].append((created, array))


class Block:
    """An array that is written in place, and copied first if a view holds it."""

    __slots__ = ("_created", "_views", "array")

    def __init__(self, array: Array, views: Views) -> None:
        """Creates a block from an array, and counts its bytes.

        Raises:
            FullError: The memory limit would be exceeded.
        """
        views.memory.reserve(array.nbytes)
        self.array = array
        self._views = views
        self._created = views.now

    @property
    def shared(self) -> bool:
        """Whether a view holds the array."""
        return self._created < self._views.newest

    def make_writable(self) -> None:
        """Copies the array if a view holds it, so that it may be written.

        Raises:
            FullError: The memory limit does not allow a copy.
        """
        if self.shared:
            self._views.memory.reserve(self.array.nbytes)
            self._views.replaced(self._created, self.array)
            self.array = self.array.copy()
            self._created = self._views.now

    def drop(self) -> None:
        """Frees the block; open views still hold its array."""
        if self.shared:
            self._views.replaced(self._created, self.array)
        else:
            self._views.memory.release(self.array.nbytes)


def zeros(shape: tuple[int, ...], views: Views, dtype: type[np.generic] = np.float32) -> Block:
    """Creates a block of zeros.

    Raises:
        FullError: The memory limit would be exceeded; nothing was allocated.
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    views.memory.reserve(size)
    views.memory.release(size)
    return Block(np.zeros(shape, dtype), views)


def describe(memory: Memory, views: Views) -> dict[str, Any]:
    """Returns the memory section of the status."""
    return {"used_bytes": memory.used, "max_bytes": memory.most, "held_bytes": views.held_bytes}
