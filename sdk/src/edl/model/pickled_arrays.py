"""Reads the arrays of a file written by `paddle.save`, without executing code from the pickle.

`paddle.load` calls any function that a file names, so an untrusted file of parameters could run a
program (PaddlePaddle's issue 77735). Here a pickle can only build containers and arrays.
"""

from __future__ import annotations

import pickle
import pickletools
import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from edl.errors import CheckpointError, one_line
from edl.overriding import override

_NAMES = "StructuredToParameterName@@"
"""The entry in which `paddle.save` stores PaddlePaddle's internal parameter names."""
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")
_KIND = re.compile(r"[biufc?][1-9]?[0-9]?")
"""Names of number and boolean types in pickles: a letter and the size in bytes."""


class _Dtype:
    """Replaces `numpy.dtype` in pickles, because `numpy.dtype.__setstate__` trusts any flags."""

    def __init__(self, name: object, *_: object) -> None:
        if not isinstance(name, str) or not _KIND.fullmatch(name):
            raise CheckpointError(f"holds numbers of type {name!r:.40}")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _PickledArray:
    """Replaces `numpy.ndarray` in pickles; checks the bytes before passing them to numpy."""

    def __init__(self, *_: object) -> None:
        self.array: Any = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_columns, raw = state
        self.array = _array(raw, kind, shape, "F" if by_columns else "C")


def _array(raw: Any, kind: _Dtype, shape: Any, order: Any) -> Any:
    if not isinstance(raw, (bytes, bytearray)):  # `bytes(n)` would allocate n zeros for any n
        raise CheckpointError(f"holds {type(raw).__name__} instead of an array's bytes")
    array = np.frombuffer(raw, kind.dtype)  # no copy: a pickle may use the same bytes many times
    return array.reshape(tuple(int(size) for size in shape), order="F" if order == "F" else "C")


def _from_buffer(raw: Any, kind: _Dtype, shape: Any, order: Any, *_: object) -> _PickledArray:
    """Replaces numpy's `_frombuffer`, which pickles of protocol 5 call."""
    pickled = _PickledArray()
    pickled.array = _array(raw, kind, shape, order)
    return pickled


class _Names(OrderedDict[Any, Any]):
    """Replaces `OrderedDict` in pickles, so that a pickle must add each entry separately."""

    def __init__(self) -> None:  # without entries, which a pickle could otherwise copy many times
        super().__init__()


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Names,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("numpy.core.multiarray", "_reconstruct"): _PickledArray,  # before numpy 2
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
}


def read_arrays(path: Path) -> dict[str, Any]:
    """Reads the arrays of one file.

    Returns:
        Parameter name -> array, as in a layer's `state_dict()`.

    Raises:
        CheckpointError: The file cannot be read, or holds something other than a dict of arrays; the
            message names the unexpected object.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            _check_numbers(file, size)
            content = _ArraysUnpickler(file, size).load()
    except CheckpointError as error:
        raise CheckpointError(f"{path} {error}") from error
    except Exception as error:  # damaged pickles raise many types
        raise CheckpointError(f"cannot read {path}: {one_line(error)}") from error
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path} holds {type(content).__name__} instead of a dict of arrays")
    arrays = {}
    for name, pickled in content.items():
        if name == _NAMES:
            continue
        if not isinstance(pickled, _PickledArray) or pickled.array is None:
            raise CheckpointError(f"{path} holds {name!r:.80}, which is not an array of numbers")
        arrays[name] = pickled.array
    return arrays


def _check_numbers(file: BinaryIO, size: int) -> None:
    """Checks the memo numbers of a pickle's objects, then rewinds the file.

    CPython's unpickler allocates a table as long as the greatest number, so that a file of a few bytes
    could allocate gigabytes.

    Raises:
        CheckpointError: A number exceeds the file's size in bytes, which never happens in a valid pickle.
        ValueError: The file is not a complete pickle.
    """
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name in _PUTS and isinstance(argument, int) and argument > size:
            raise CheckpointError(f"has a memo number {argument}, which exceeds its size in bytes")
    file.seek(0)


class _ArraysUnpickler(pickle.Unpickler):
    """An unpickler that builds only arrays in containers (https://docs.python.org/3/library/pickle.html).

    Args:
        file: The pickle.
        size: Size of the file, which is also the limit for the bytes that the pickle decodes from strings.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        super().__init__(file)
        self._bytes_left = size

    def _encode(self, text: str, encoding: str) -> bytes:
        """Replaces `_codecs.encode`, which pickles of protocol 2 call to convert strings to bytes."""
        if encoding != "latin1":
            raise CheckpointError(f"holds bytes encoded as {encoding!r:.40} instead of latin1")
        self._bytes_left -= len(text)
        if self._bytes_left < 0:
            raise CheckpointError(
                "decodes more bytes than its size, because it uses some repeatedly"
            )
        return text.encode(encoding)

    @override
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Returns the safe replacement for a class or function that builds arrays; refuses all others."""
        if (module_name, global_name) == ("_codecs", "encode"):
            return self._encode
        allowed = _ALLOWED.get((module_name, global_name))
        if allowed is None:
            raise CheckpointError(
                f"would call {module_name}.{global_name}, but only arrays are supported: save the "
                "layer's state_dict(), whose values are tensors"
            )
        return allowed
