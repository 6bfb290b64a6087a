"""A source of arrays in memory, which are any objects with a length and with slices that can be joined.

Numpy arrays are the fastest.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from edl.errors import DataError
from edl.master import protocol
from edl.overriding import override
from edl.sources.base import Dataset, RandomAccess, Source

_CONCATENATE = {
    "numpy": ("numpy", "concatenate"),
    "torch": ("torch", "cat"),
    "paddle": ("paddle", "concat"),
    "jax": ("jax.numpy", "concatenate"),
    "jaxlib": ("jax.numpy", "concatenate"),
}
"""Package whose arrays `+` adds instead of joining -> module and function that concatenate its arrays."""


def from_arrays(name: str, *arrays: Any) -> Dataset:
    """Returns a data set of arrays of equal length; batches are tuples of arrays.

    With a single array, batches are arrays instead of tuples.

    Args:
        name: Name of the data set.
        arrays: Lists, numpy arrays, tensors of torch, PaddlePaddle or JAX, or objects whose slices are
            one of these, such as h5py data sets.

    Raises:
        DataError: Lengths differ or are 0, or `+` does not concatenate slices.
    """
    if not arrays:
        raise DataError(f"data set {name!r}: give at least one array")
    sizes = [len(array) for array in arrays]
    if len(set(sizes)) != 1:
        raise DataError(f"data set {name!r}: arrays have different lengths {sizes}")
    if not sizes[0]:
        raise DataError(f"data set {name!r} is empty: there is nothing to train on")
    for array in arrays:
        _check_joins(name, array)
    return Dataset(name, ArraySource(arrays))


class ArraySource(Source, RandomAccess):
    """A `Source` of arrays; its blocks are tuples of slices, without copies."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._arrays = tuple(arrays)
        self._picks = [_picks(array) for array in arrays]

    @override
    def shape(self) -> protocol.Json:
        return {"records": len(self._arrays[0])}

    @override
    def read(self, file: str | None, start: int, end: int) -> tuple[Any, ...]:  # noqa: ARG002 - arrays have no files
        return tuple(array[start:end] for array in self._arrays)

    @override
    def pick(self, numbers: Sequence[int]) -> tuple[Any, ...]:
        """Returns copies of the records with these numbers."""
        return _Copied([picks(numbers) for picks in self._picks])

    @override
    def batch(self, blocks: Sequence[tuple[Any, ...]]) -> Any:
        """Returns a copy of the records; the program may change the copy."""
        first = blocks[0]
        if len(blocks) == 1 and isinstance(first, _Copied):
            columns: tuple[Any, ...] = first
        else:
            columns = tuple(_joined(column) for column in zip(*blocks))
        return columns if len(columns) > 1 else columns[0]


class _Copied(tuple[Any, ...]):
    """A block of copied records. A batch that consists of this block alone needs no further copy."""

    __slots__ = ()


def _picks(array: Any) -> Callable[[Sequence[int]], Any]:
    """Returns a function that copies the records with given numbers."""
    if _package(array) == "numpy":
        return partial(array.take, axis=0)  # twice as fast as indexing
    return lambda numbers: _joined(
        tuple(array[int(number) : int(number) + 1] for number in numbers)
    )


def _package(array: Any) -> str:
    """Returns the name of the package that defines an array's type."""
    return type(array).__module__.partition(".")[0]


def _check_joins(name: str, array: Any) -> None:
    """Refuses arrays whose `+` adds numbers, because batches would silently be sums of records."""
    part = array[:1]
    try:
        length = len(_joined((part, part)))
    except TypeError:  # slices without `+` raise an error when the first batch is built
        return
    if length != len(part) * 2:
        kind = f"{type(array).__module__}.{type(array).__qualname__}"
        raise DataError(
            f"data set {name!r}: {kind:.80} has no slices that + joins: give numpy.asarray(...) of it"
        )


def _joined(parts: tuple[Any, ...]) -> Any:
    first = parts[0]
    names = _CONCATENATE.get(_package(first))
    if names is not None:
        module, function = names
        return getattr(importlib.import_module(module), function)(list(parts))
    joined = first[:]
    for part in parts[1:]:
        joined = joined + part
    return joined
