"""Arrays in memory: anything with a length that can be sliced; numpy arrays are fast."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from edl.errors import DataError
from edl.master import protocol
from edl.sources.base import Dataset


def from_arrays(name: str, *arrays: Any) -> Dataset:
    """Returns a data set of arrays of equal length; batches are tuples of arrays.

    With one array, batches are arrays instead of tuples.

    Raises:
        DataError: Lengths differ, or are 0.
    """
    if not arrays:
        raise DataError(f"data set {name!r}: give at least one array")
    sizes = [len(array) for array in arrays]
    if len(set(sizes)) != 1:
        raise DataError(f"data set {name!r}: arrays have different lengths {sizes}")
    if not sizes[0]:
        raise DataError(f"data set {name!r} is empty: there is nothing to train on")
    return Dataset(name, ArraySource(arrays))


class ArraySource:
    """A `Source` of arrays; its blocks are tuples of slices, without copies."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._arrays = tuple(arrays)
        self._picks = [_picks(array) for array in arrays]

    def shape(self) -> protocol.Json:
        """As in `Source`."""
        return {"records": len(self._arrays[0])}

    def read(self, file: str | None, start: int, end: int) -> tuple[Any, ...]:  # noqa: ARG002 - no files
        """As in `Source`."""
        return tuple(array[start:end] for array in self._arrays)

    def pick(self, numbers: Sequence[int]) -> tuple[Any, ...]:
        """As in `RandomAccess`; a copy."""
        return _Copied([picks(numbers) for picks in self._picks])

    def batch(self, blocks: Sequence[tuple[Any, ...]]) -> Any:
        """A copy, so that a program may change its batch and not the data."""
        first = blocks[0]
        if len(blocks) == 1 and isinstance(first, _Copied):
            columns: tuple[Any, ...] = first
        else:
            columns = tuple(_joined(column) for column in zip(*blocks))
        return columns if len(columns) > 1 else columns[0]


class _Copied(tuple[Any, ...]):
    """A block that is a copy of records already: a batch of it alone needs no other."""

    __slots__ = ()


def _picks(array: Any) -> Callable[[Sequence[int]], Any]:
    """Returns a function that returns a copy of the records of these numbers."""
    if _is_numpy(array):
        return partial(array.take, axis=0)  # twice as fast as an index
    return lambda numbers: _joined(
        tuple(array[int(number) : int(number) + 1] for number in numbers)
    )


def _is_numpy(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "numpy"


def _joined(parts: tuple[Any, ...]) -> Any:
    first = parts[0]
    if _is_numpy(first):
        return importlib.import_module("numpy").concatenate(parts)
    joined = first[:]
    for part in parts[1:]:
        joined = joined + part
    return joined
