"""How a large state is cut into parts that reach newcomers one after the other (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    import numpy as np

    from edl.sync.replica import GroupModel, State

MIN_BYTES = 32 << 20
"""A smaller state is handed over at once, which takes some hundredths of a second."""


class ArrayGroup(NamedTuple):
    """Arrays of a state that advance together, element by element."""

    names: tuple[str, ...]
    size: int
    """Number of elements of each."""
    item_bytes: int
    """Bytes of one element of each, together."""


class PartedReplica(Protocol):
    """A `Replica` whose state newcomers can get in parts while the others train.

    In a step, the new value of an element may depend only on the elements of the same index in the
    arrays of its group, on the gradient and on `rest`. This holds for SGD, momentum, Adagrad and Adam
    with global clipping; not where a rate depends on the norm of a parameter (LARS, LAMB). The
    state is read between `backward` and `step`, and is that of before both.
    """

    def groups(self) -> Sequence[ArrayGroup]:
        """Returns all large arrays of `state`, in groups; none if it cannot be cut."""
        ...

    def read_slice(self, name: str, start: int, stop: int) -> np.ndarray:
        """Returns a copy of elements [start, stop) of an array, along one axis in C order."""
        ...

    def write_slice(self, name: str, start: int, elements: np.ndarray) -> None:
        """Replaces elements from `start` on."""
        ...

    def rest(self) -> State:
        """Returns copies of what is in no group."""
        ...

    def load_rest(self, rest: State) -> None:
        """Loads what `rest` returned."""
        ...


class Slice(NamedTuple):
    """Elements [start, stop) of all arrays of a group."""

    names: tuple[str, ...]
    start: int
    stop: int


def as_parted(replica: GroupModel) -> PartedReplica | None:
    """Returns a replica as one that can be cut; None if it cannot."""
    parted = cast("PartedReplica", replica)
    return parted if hasattr(replica, "groups") and parted.groups() else None


def state_bytes(groups: Iterable[ArrayGroup]) -> int:
    """Returns how many bytes the arrays of groups have."""
    return sum(group.size * group.item_bytes for group in groups)


def bytes_in_parts(replica: GroupModel) -> int:
    """Returns the bytes of a state that can be cut; 0 where it is quickly handed over at once."""
    parted = as_parted(replica)
    size = 0 if parted is None else state_bytes(parted.groups())
    return size if size >= MIN_BYTES else 0


def cut(groups: Iterable[ArrayGroup], part_bytes: int) -> Iterator[list[Slice]]:
    """Yields parts of about `part_bytes`, which have all elements once.

    They depend only on the sizes, so members with the same state get the same ones.
    """
    part: list[Slice] = []
    room = part_bytes
    for group in groups:
        start = 0
        while start < group.size:
            stop = min(group.size, start + max(1, room // group.item_bytes))
            part.append(Slice(group.names, start, stop))
            room -= (stop - start) * group.item_bytes
            start = stop
            if room < group.item_bytes:
                yield part
                part, room = [], part_bytes
    if part:
        yield part
