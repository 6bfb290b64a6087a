"""Cuts a large state into parts, so that newcomers can receive it part by part (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    import numpy as np

    from edl.sync.replica import GroupModel, State

MIN_BYTES = 32 << 20
"""Smallest state that is cut; a smaller one is sent at once, which takes some hundredths of a
second."""


class ArrayGroup(NamedTuple):
    """Arrays of a state that advance together, element by element."""

    names: tuple[str, ...]
    size: int
    """Number of elements of each array."""
    item_bytes: int
    """Sum of the arrays' element sizes in bytes."""


class PartedReplica(Protocol):
    """A `Replica` whose state newcomers can get in parts while the others train.

    In a step, the new value of an element may depend only on the elements of the same index in the
    arrays of its group, on the gradient and on `rest`. This holds for SGD, momentum, Adagrad and Adam
    with global clipping, but not if a learning rate depends on the norm of a parameter (LARS,
    LAMB). Members read the state between `backward` and `step`; at that time, it must still be the
    state from before the step.
    """

    def groups(self) -> Sequence[ArrayGroup]:
        """Returns all large arrays of `state`, in groups; empty if the state cannot be cut."""
        ...

    def read_slice(self, name: str, start: int, stop: int) -> np.ndarray:
        """Returns a copy of elements [start, stop) of an array, along one axis in C order."""
        ...

    def write_slice(self, name: str, start: int, elements: np.ndarray) -> None:
        """Replaces an array's elements from `start` on."""
        ...

    def rest(self) -> State:
        """Returns copies of the state outside the groups."""
        ...

    def load_rest(self, rest: State) -> None:
        """Loads a state that `rest` returned."""
        ...


class Slice(NamedTuple):
    """Elements [start, stop) of all arrays of a group."""

    names: tuple[str, ...]
    start: int
    stop: int


def as_parted(replica: GroupModel) -> PartedReplica | None:
    """Returns the replica as a `PartedReplica`, or None if its state cannot be cut."""
    parted = cast("PartedReplica", replica)
    return parted if hasattr(replica, "groups") and parted.groups() else None


def state_bytes(groups: Iterable[ArrayGroup]) -> int:
    """Returns the size of all arrays of groups in bytes."""
    return sum(group.size * group.item_bytes for group in groups)


def bytes_in_parts(replica: GroupModel) -> int:
    """Returns the size in bytes of a state that can be cut; 0 if it is small or cannot be cut."""
    parted = as_parted(replica)
    size = 0 if parted is None else state_bytes(parted.groups())
    return size if size >= MIN_BYTES else 0


def cut(groups: Iterable[ArrayGroup], part_bytes: int) -> Iterator[list[Slice]]:
    """Yields parts of about `part_bytes`; each element is in exactly one part.

    The parts depend only on the sizes of groups, so all members with the same state cut it alike.
    """
    part: list[Slice] = []
    free_bytes = part_bytes
    for group in groups:
        start = 0
        while start < group.size:
            stop = min(group.size, start + max(1, free_bytes // group.item_bytes))
            part.append(Slice(group.names, start, stop))
            free_bytes -= (stop - start) * group.item_bytes
            start = stop
            if free_bytes < group.item_bytes:
                yield part
                part, free_bytes = [], part_bytes
    if part:
        yield part
