"""Copies between tensors and one flat numpy array.

CPU tensors are copied by memory address. Tensors on other devices are copied by PaddlePaddle, because
their addresses are not valid in this process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

FLOAT_BYTES = 4


class FlatBuffer:
    """The layout of several float32 tensors in one flat array."""

    def __init__(self, shapes: Sequence[Sequence[int]]) -> None:
        self._shapes = [tuple(shape) for shape in shapes]
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
        ends = np.cumsum(sizes, dtype=np.int64).tolist() if sizes else []
        self._bytes = [size * FLOAT_BYTES for size in sizes]
        self._places = [(end - size) * FLOAT_BYTES for end, size in zip(ends, sizes)]
        self.size = sum(sizes)

    def read(self, tensors: Sequence[Any], out: np.ndarray) -> None:
        """Copies tensors into a contiguous array; a tensor that is None becomes zeros."""
        begin = out.ctypes.data
        for tensor, place, size in zip(tensors, self._places, self._bytes):
            if tensor is None:
                ctypes.memset(begin + place, 0, size)
            elif not tensor.place.is_cpu_place():
                _part(out, place, size)[:] = tensor.numpy().reshape(-1)
            else:
                dense = tensor if tensor.is_contiguous() else tensor.contiguous()
                ctypes.memmove(begin + place, dense.data_ptr(), size)

    def write(self, flat: np.ndarray, tensors: Sequence[Any]) -> None:
        """Copies a contiguous array into contiguous tensors."""
        begin = flat.ctypes.data
        for tensor, shape, place, size in zip(tensors, self._shapes, self._places, self._bytes):
            if tensor.place.is_cpu_place():
                ctypes.memmove(tensor.data_ptr(), begin + place, size)
            else:  # `set_value` would move the tensor to the current device
                array = _part(flat, place, size).reshape(shape)
                tensor.copy_(paddle.to_tensor(array, place=paddle.CPUPlace()), True)

    def zeros(self, index: int) -> Any:
        """Returns zeros in the shape of the tensor at this index."""
        return paddle.zeros(self._shapes[index], "float32")


def _part(flat: np.ndarray, place: int, size: int) -> np.ndarray:
    return flat[place // FLOAT_BYTES : (place + size) // FLOAT_BYTES]
