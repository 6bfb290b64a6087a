"""Running statistics, such as those of batch normalization, exchanged with the gradient.

Each micro-batch changes them starting from their values before the step; the change of the step is
the weighted mean of these changes. So they are the same in all members.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle import nn

from edl.model.paddle.flat_buffer import FlatBuffer

_NAMES = ("_mean", "_variance", "weight_u", "weight_v")
_LAYERS = (nn.BatchNorm, nn.BatchNorm1D, nn.BatchNorm2D, nn.BatchNorm3D, nn.SpectralNorm)
"""These store their statistics as parameters that are not trained instead of buffers."""


def running_tensors(layer: Any) -> list[Any]:
    """Returns the float32 tensors that a forward pass may change, in a fixed order.

    Buffers that are not persistable are constants by convention and excluded.
    """
    tensors = []
    for part in layer.sublayers(include_self=True):
        if isinstance(part, _LAYERS):
            tensors += [getattr(part, name) for name in _NAMES if hasattr(part, name)]
        off = part._non_persistable_buffer_names_set  # noqa: SLF001 - no public name for it
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
        """Starts a step from the current tensors, after they were loaded."""
        if self.size:
            self._flat.read(self._tensors, self._before_step)
            self.clear()

    def start_forward(self) -> None:
        """Prepares the forward pass of a micro-batch."""
        self.restore_tensors()
        self._has_changed = self.size > 0

    def finish_forward(self, weight: float) -> None:
        """Adds the change of a forward pass."""
        if self.size:
            self._flat.read(self._tensors, self._current)
            self._change += np.float32(weight) * (self._current - self._before_step)

    def restore_tensors(self) -> None:
        """Sets the tensors to their values before the step, and keeps the change."""
        if self._has_changed:
            self._flat.write(self._before_step, self._tensors)
        self._has_changed = False

    def read(self, out: np.ndarray) -> None:
        """Copies the change of this member's micro-batches."""
        out[:] = self._change

    def write(self, flat: np.ndarray) -> None:
        """Sets the summed change of all members."""
        self._change[:] = flat

    def step(self) -> None:
        """Applies the change."""
        if self.size:
            self._before_step += self._change
            self.clear()

    def clear(self) -> None:
        """Undoes all changes since the start of the step."""
        if self.size:
            self._flat.write(self._before_step, self._tensors)
            self._change.fill(0)
        self._has_changed = False
