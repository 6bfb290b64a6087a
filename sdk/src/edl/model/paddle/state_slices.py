"""Reads and writes slices of a model's CPU tensors by address.

New members receive a large state in such slices.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from edl.model.paddle.optimizer_state import PREFIX
from edl.model.parameters import MODEL_PREFIX
from edl.sync.parts import ArrayGroup

Tensors = dict[str, Any]


class StateSlices:
    """The tensors of a model in groups: each parameter with its accumulators."""

    def __init__(self, tensors: Callable[[], Tensors], parameters: Sequence[str]) -> None:
        """Stores how to get the tensors, without reading them yet.

        Args:
            tensors: Returns all tensors of the state by name.
            parameters: Names of the trained parameters and of those that never change.
        """
        self._all_tensors, self._parameters = tensors, parameters
        self._grouped: Tensors = {}
        self._rest: Tensors = {}

    def groups(self) -> list[ArrayGroup]:
        """Returns the groups; an empty list if a tensor is on another device or is not contiguous."""
        tensors = self._all_tensors()
        by_parameter: dict[str, list[str]] = {}
        for key in tensors:
            parameter = key[len(PREFIX) :].partition("/")[2] if key.startswith(PREFIX) else ""
            by_parameter.setdefault(parameter, []).append(key)
        groups = []
        for name in self._parameters:
            key = MODEL_PREFIX + name
            shape = tensors[key].shape
            slots = [slot for slot in by_parameter.get(name, []) if tensors[slot].shape == shape]
            names = (key, *slots)
            if prod(shape) > 1:  # other accumulators with one number also have this shape
                item_bytes = sum(_item_bytes(tensors[member]) for member in names)
                groups.append(ArrayGroup(names, prod(shape), item_bytes))
        self._grouped = {key: tensors[key] for group in groups for key in group.names}
        self._rest = {key: tensor for key, tensor in tensors.items() if key not in self._grouped}
        return groups if all(map(_is_addressable, self._grouped.values())) else []

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Returns the bytes of elements [start, stop)."""
        tensor = self._grouped[name]
        item_bytes = _item_bytes(tensor)
        out = np.empty((stop - start) * item_bytes, np.uint8)
        ctypes.memmove(out.ctypes.data, tensor.data_ptr() + start * item_bytes, out.nbytes)
        return out

    def write(self, name: str, start: int, elements: np.ndarray) -> None:
        """Replaces the elements from `start` on by bytes that `read` returned."""
        tensor = self._grouped[name]
        address = tensor.data_ptr() + start * _item_bytes(tensor)
        ctypes.memmove(address, elements.ctypes.data, elements.nbytes)

    def rest(self) -> dict[str, np.ndarray]:
        """Returns copies of the tensors outside all groups."""
        return {name: tensor.numpy() for name, tensor in self.rest_tensors().items()}

    def rest_tensors(self) -> Tensors:
        """Returns the tensors outside all groups, without copying them."""
        if not self._grouped:
            self.groups()
        return self._rest


def _item_bytes(tensor: Any) -> int:
    return int(tensor.element_size())


def _is_addressable(tensor: Any) -> bool:
    return bool(tensor.place.is_cpu_place() and tensor.is_contiguous())
