"""How many bytes are in use, and copies on write: what a view holds stays as it was.

A view (a checkpoint being written, a pinned version) costs nothing when it is opened. A block that
is written while a view holds it is copied first, and the old one is counted until no view is left
that holds it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pserver.errors import FullError

Floats = NDArray[np.float32]


class Memory:
    """Bytes of arrays; not of the process."""

    def __init__(self, most: int | None = None) -> None:
        """Nothing is in use.

        Args:
            most: How many bytes may be; None is no limit.
        """
        self.used = 0
        self.most = most

    def take(self, size: int) -> None:
        """Counts bytes that are about to be used.

        Raises:
            FullError: There is no room for them.
        """
        if self.most is not None and self.used + size > self.most:
            raise FullError(self.used + size - self.most)
        self.used += size

    def give(self, size: int) -> None:
        """They are used no more."""
        self.used -= size


class Views:
    """Which views are open, and what they hold that is otherwise gone."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.now = 0
        """Number of the view that was opened last."""
        self._open: dict[int, list[tuple[int, Floats]]] = {}
        """View -> arrays that were replaced while it was the newest, and when they were made."""

    @property
    def newest(self) -> int:
        """Of those that are open; 0 where none is."""
        return max(self._open, default=0)

    @property
    def held_bytes(self) -> int:
        """Of arrays that only views hold."""
        return sum(array.nbytes for kept in self._open.values() for _, array in kept)

    def open(self) -> int:
        """A new view holds all blocks as they are."""
        self.now += 1
        self._open[self.now] = []
        return self.now

    def close(self, number: int) -> None:
        """The view is not needed any more; closing it again changes nothing."""
        kept = self._open.pop(number, [])
        older = max((one for one in self._open if one < number), default=0)
        for made, array in kept:
            if made < older:
                self._open[older].append((made, array))
            else:
                self.memory.give(array.nbytes)

    def replaced(self, made: int, array: Floats) -> None:
        """A block was copied, because the newest view holds it."""
        self._open[self.newest].append((made, array))


class Block:
    """An array that is written in place, unless a view holds it."""

    __slots__ = ("_made", "_views", "array")

    def __init__(self, array: Floats, views: Views) -> None:
        """Counts the array.

        Raises:
            FullError: There is no room for it.
        """
        views.memory.take(array.nbytes)
        self.array = array
        self._views = views
        self._made = views.now

    @property
    def shared(self) -> bool:
        """Whether a view holds it."""
        return self._made < self._views.newest

    def free(self) -> None:
        """Makes the array one that may be written.

        Raises:
            FullError: There is no room for a copy.
        """
        if self.shared:
            self._views.memory.take(self.array.nbytes)
            self._views.replaced(self._made, self.array)
            self.array = self.array.copy()
            self._made = self._views.now

    def drop(self) -> None:
        """It is not needed any more; views may still hold it."""
        if self.shared:
            self._views.replaced(self._made, self.array)
        else:
            self._views.memory.give(self.array.nbytes)


def zeros(shape: tuple[int, ...], views: Views) -> Block:
    """A block of zeros; refused before anything is allocated."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(np.float32).itemsize
    views.memory.take(size)
    views.memory.give(size)
    return Block(np.zeros(shape, np.float32), views)


def describe(memory: Memory, views: Views) -> dict[str, Any]:
    """For the status."""
    return {"used_bytes": memory.used, "most_bytes": memory.most, "held_bytes": views.held_bytes}
