"""Keeps running statistics of batch normalisation equal in all members after each step."""

from __future__ import annotations

from typing import Any

import torch


class NormStatistics:
    """The buffers that normalisation layers update in forward; a step sets them to the members' mean."""

    def __init__(self, model: Any) -> None:
        """Finds the buffers; a model's other buffers must not change in training."""
        kind = torch.nn.modules.batchnorm._NormBase  # noqa: SLF001 - torch has no public base class
        layers = [layer for layer in model.modules() if isinstance(layer, kind)]
        self._buffers = [buffer for layer in layers for buffer in layer.buffers()]
        self.saved: list[Any] = []
        """Copies of the buffers from before the current step; empty between steps."""
        device = self._buffers[0].device if self._buffers else "cpu"
        size = sum(buffer.numel() for buffer in self._buffers)
        self.flat = torch.zeros(size, dtype=torch.float64, device=device)

    def __bool__(self) -> bool:
        """Returns whether the model has running statistics."""
        return bool(self._buffers)

    def names_in(self, model: Any) -> set[str]:
        """Returns the buffers' names in the state of the model."""
        places = {id(buffer) for buffer in self._buffers}
        return {name for name, buffer in model.named_buffers() if id(buffer) in places}

    def save(self) -> None:
        """Copies the buffers before a step."""
        self.saved = [buffer.clone() for buffer in self._buffers]

    def restore(self) -> None:
        """Restores the buffers from before the step, because the step is repeated or skipped."""
        for buffer, saved in zip(self._buffers, self.saved):
            buffer.copy_(saved)
        self.forget()

    def forget(self) -> None:
        """Drops the copies, because the step is made."""
        self.saved = []

    def move(self) -> None:
        """Gives `flat` new memory, because an abandoned sum may still write into the old memory."""
        self.flat = torch.zeros_like(self.flat)

    def write(self, weight: float) -> None:
        """Writes this member's statistics, times its share of the step's records, into `flat`."""
        offset = 0
        for buffer in self._buffers:
            part = self.flat[offset : offset + buffer.numel()]
            part.copy_(buffer.reshape(-1)).mul_(weight)
            offset += buffer.numel()

    def read(self) -> None:
        """Sets the buffers to the sum of all members in `flat`."""
        offset = 0
        for buffer in self._buffers:
            part = self.flat[offset : offset + buffer.numel()]
            values = part if buffer.is_floating_point() else part.round()
            buffer.copy_(values.view_as(buffer))
            offset += buffer.numel()
