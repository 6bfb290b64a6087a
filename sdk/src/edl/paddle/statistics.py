"""Running statistics, such as batch normalization's: exchanged with the gradient.

Each micro-batch of a step changes them from where they were at the step's begin; the step's change
is the weighted mean of these. So they are the same in all members, whoever computed what.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle import nn

from edl.paddle.memory import Flat

_NAMES = ("_mean", "_variance", "weight_u", "weight_v")
_LAYERS = (nn.BatchNorm, nn.BatchNorm1D, nn.BatchNorm2D, nn.BatchNorm3D, nn.SpectralNorm)
"""These keep their statistics as parameters that are not trained, and no buffers."""


def running(layer: Any) -> list[Any]:
    """Tensors of float32 numbers that a forward pass may change, in a fixed order.

    Buffers that are not persistable are constants by convention, and not among them.
    """
    found = []
    for part in layer.sublayers(include_self=True):
        if isinstance(part, _LAYERS):
            found += [getattr(part, name) for name in _NAMES if hasattr(part, name)]
        off = part._non_persistable_buffer_names_set  # noqa: SLF001 - no public name says it
        for name, one in part.named_buffers(include_sublayers=False):
            if one is not None and name not in off:
                found.append(one)
    once = {id(one): one for one in found if one.dtype == paddle.float32}
    return list(once.values())


class Statistics:
    """Of one model; `size` float32 numbers after its gradient's."""

    def __init__(self, layer: Any) -> None:
        self._tensors = running(layer)
        self._flat = Flat([one.shape for one in self._tensors])
        self.size = self._flat.size
        self._begin, self._now, self._change = np.zeros((3, self.size), np.float32)
        self._moved = False
        """Whether the tensors are no more as at the step's begin."""
        self.loaded()

    def loaded(self) -> None:
        """The tensors were set from outside: a step begins there."""
        if self.size:
            self._flat.read(self._tensors, self._begin)
            self.clear()

    def before(self) -> None:
        """A forward pass of a micro-batch begins."""
        if self._moved:
            self._flat.write(self._begin, self._tensors)
        self._moved = self.size > 0

    def after(self, weight: float) -> None:
        """It is over."""
        if self.size:
            self._flat.read(self._tensors, self._now)
            self._change += np.float32(weight) * (self._now - self._begin)

    def read(self, out: np.ndarray) -> None:
        """The change of this member's micro-batches."""
        out[:] = self._change

    def write(self, flat: np.ndarray) -> None:
        """The change of all members'."""
        self._change[:] = flat

    def step(self) -> None:
        """The change is made."""
        if self.size:
            self._begin += self._change
            self.clear()

    def clear(self) -> None:
        """Whatever changed since the step's begin is undone."""
        if self.size:
            self._flat.write(self._begin, self._tensors)
            self._change.fill(0)
        self._moved = False
