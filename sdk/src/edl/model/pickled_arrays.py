"""Reads the arrays of a file that `paddle.save` wrote, without running what a pickle can run.

`paddle.load` calls whatever a file names: a file of parameters from elsewhere could run a program
(PaddlePaddle's issue 77735). Here a pickle can build containers and arrays and nothing else.
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
"""An entry of `paddle.save`: the parameters' names inside of PaddlePaddle."""
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")
_KIND = re.compile(r"[biufc?][1-9]?[0-9]?")
"""Names of types in pickles: numbers and truth values, with their size in bytes."""


class _Dtype:
    """What a pickle calls `numpy.dtype`: numpy's own `__setstate__` believes any flags."""

    def __init__(self, name: object, *_: object) -> None:
        if not isinstance(name, str) or not _KIND.fullmatch(name):
            raise CheckpointError(f"holds numbers of type {name!r:.40}")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _PickledArray:
    """What a pickle calls an array: its bytes are checked before numpy sees them."""

    def __init__(self, *_: object) -> None:
        self.array: Any = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_columns, raw = state
        self.array = _array(raw, kind, shape, "F" if by_columns else "C")


def _array(raw: Any, kind: _Dtype, shape: Any, order: Any) -> Any:
    if not isinstance(raw, (bytes, bytearray)):  # `bytes` makes as many zeros as a number says
        raise CheckpointError(f"holds {type(raw).__name__} in place of an array's bytes")
    array = np.frombuffer(raw, kind.dtype)  # no copy: a pickle may name the same bytes again
    return array.reshape(tuple(int(size) for size in shape), order="F" if order == "F" else "C")


def _from_buffer(raw: Any, kind: _Dtype, shape: Any, order: Any, *_: object) -> _PickledArray:
    """As numpy's function of this name, which pickles of protocol 5 call."""
    pickled = _PickledArray()
    pickled.array = _array(raw, kind, shape, order)
    return pickled


class _Names(OrderedDict[Any, Any]):
    """What a pickle calls an ordered mapping; it fills it entry by entry, each of which is in the file."""

    def __init__(self) -> None:  # no entries: they would be copied as often as the pickle says
        super().__init__()


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Names,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("numpy.core.multiarray", "_reconstruct"): _PickledArray,  # of numpy before 2
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
}


def read_arrays(path: Path) -> dict[str, Any]:
    """Reads the arrays of one file.

    Returns:
        Array by parameter name, as in `state_dict()` of a layer.

    Raises:
        CheckpointError: It cannot be read, or holds anything but arrays by name; the text names it.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            _check_numbers(file, size)
            content = _ArraysUnpickler(file, size).load()
    except CheckpointError as error:
        raise CheckpointError(f"{path} {error}") from error
    except Exception as error:  # a damaged pickle raises nearly anything
        raise CheckpointError(f"{path} cannot be read: {one_line(error)}") from error
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path} holds {type(content).__name__} instead of arrays by name")
    arrays = {}
    for name, pickled in content.items():
        if name == _NAMES:
            continue
        if not isinstance(pickled, _PickledArray) or pickled.array is None:
            raise CheckpointError(f"{path} holds {name!r:.80}, which is not an array of numbers")
        arrays[name] = pickled.array
    return arrays


def _check_numbers(file: BinaryIO, size: int) -> None:
    """Checks the numbers that a pickle gives its objects, and goes back to its beginning.

    CPython's reader has a table as long as the greatest number, so that a few bytes take gigabytes.

    Raises:
        CheckpointError: One is greater than the file's size in bytes, which that of no object is.
        ValueError: It is not a whole pickle.
    """
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name in _PUTS and isinstance(argument, int) and argument > size:
            raise CheckpointError(f"gives an object the number {argument}: it has fewer bytes")
    file.seek(0)


class _ArraysUnpickler(pickle.Unpickler):
    """An unpickler of arrays in containers (https://docs.python.org/3/library/pickle.html).

    Args:
        file: The pickle.
        size: Its size in bytes; what it makes of its texts is no longer.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        super().__init__(file)
        self._bytes_left = size

    def _encode(self, text: str, encoding: str) -> bytes:
        """Returns the bytes that a pickle of protocol 2 writes as text, which is how it calls `_codecs.encode`."""
        if encoding != "latin1":
            raise CheckpointError(f"holds bytes as {encoding!r:.40}, not as latin1")
        self._bytes_left -= len(text)
        if self._bytes_left < 0:
            raise CheckpointError("holds more bytes than it has: it names the same ones again")
        return text.encode(encoding)

    @override
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Returns a class or function that builds arrays; refuses all others."""
        if (module_name, global_name) == ("_codecs", "encode"):
            return self._encode
        allowed = _ALLOWED.get((module_name, global_name))
        if allowed is None:
            raise CheckpointError(
                f"wants to call {module_name}.{global_name}: only arrays are read; save the "
                "layer's state_dict(), whose values are tensors"
            )
        return allowed
