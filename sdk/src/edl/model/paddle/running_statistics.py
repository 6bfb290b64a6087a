"""Running statistics, such as those of batch normalization, which members exchange with the gradient.

Every micro-batch starts from the statistics' values before the step. The change in a step is the
weighted mean of the micro-batches' changes, so that the statistics are the same in all members.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle import nn

from edl.model.paddle.flat_buffer import FlatBuffer

_NAMES = ("_mean", "_variance", "weight_u", "weight_v")
_LAYERS = (nn.BatchNorm, nn.BatchNorm1D, nn.BatchNorm2D, nn.BatchNorm3D, nn.SpectralNorm)
"""Layers that store their statistics as untrained parameters instead of buffers."""


def running_tensors(layer: Any) -> list[Any]:
    """Returns the float32 tensors that a forward pass may change, in a fixed order.

    Non-persistable buffers are left out, because they are constants by convention.
    """
    tensors = []
    for part in layer.sublayers(include_self=True):
        if isinstance(part, _LAYERS):
            tensors += [getattr(part, name) for name in _NAMES if hasattr(part, name)]
        off = part._non_persistable_buffer_names_set  # noqa: SLF001 - it has no public name
        for name, buffer in part.named_buffers(include_sublayers=False):
            if buffer is not None and name not in off:
                tensors.append(buffer)
    by_id = {id(tensor): tensor for tensor in tensors if tensor.dtype == paddle.float32}
    return list(by_id.values())


class RunningStatistics:
    """The running statistics of a model: `size` elements at the end of its flat gradient."""

    def __init__(self, layer: Any) -> None:
        self._tensors = running_tensors(layer)
        self._flat = FlatBuffer([tensor.shape for tensor in self._tensors])
        self.size = self._flat.size
        self._before_step, self._current, self._change = np.zeros((3, self.size), np.float32)
        self._has_changed = False
        """Whether the tensors differ from their values before the step."""
        self.restart()

    def has(self, tensor: Any) -> bool:
        """Returns whether a tensor is one of the running statistics."""
        return any(tensor is own for own in self._tensors)

    def restart(self) -> None:
        """Makes the current tensors the values before the next step, after they were loaded."""
        if self.size:
            self._flat.read(self._tensors, self._before_step)
            self.clear()

    def start_forward(self) -> None:
        """Prepares the forward pass of a micro-batch."""
        self.restore_tensors()
        self._has_changed = self.size > 0

    def finish_forward(self, weight: float) -> None:
        """Adds the change that the forward pass made, times `weight`, to the change of the step."""
        if self.size:
            self._flat.read(self._tensors, self._current)
            self._change += np.float32(weight) * (self._current - self._before_step)

    def restore_tensors(self) -> None:
        """Sets the tensors to their values before the step, and keeps the step's change in memory."""
        if self._has_changed:
            self._flat.write(self._before_step, self._tensors)
        self._has_changed = False

    def read(self, out: np.ndarray) -> None:
        """Copies to `out` the change that this member's micro-batches made."""
        out[:] = self._change

    def write(self, flat: np.ndarray) -> None:
        """Replaces this member's change by the sum of all members' changes."""
        self._change[:] = flat

    def step(self) -> None:
        """Applies the change to the statistics, and ends the step."""
        if self.size:
            self._before_step += self._change
            self.clear()

    def clear(self) -> None:
        """Undoes all changes since the start of the step."""
        if self.size:
            self._flat.write(self._before_step, self._tensors)
            self._change.fill(0)
        self._has_changed = False
