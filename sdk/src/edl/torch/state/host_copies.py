"""Copies tensors to the host, while the program continues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from edl.torch.pods.shards import local

_UNPINNED = ("cpu", "mps")
"""Devices whose tensors are not copied through pinned memory; on MPS, host and device share memory."""


class HostCopies:
    """Copies of tensors as they were at construction: the stream's later operations run after the copies.

    Copies of sharded tensors, and of tensors on MPS, block.
    """

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        """Begins the copies; copies of tensors on the host are complete at once.

        Args:
            tensors: Tensors by name; they may change after the call.
        """
        self._copies = {name: _begin_copy(tensor.detach()) for name, tensor in tensors.items()}
        devices = {local(tensor).device for tensor in tensors.values()}
        self._events = [_record(device) for device in devices if device.type not in _UNPINNED]

    def wait(self) -> dict[str, Any]:
        """Waits for the copies and returns them by name; may be called on any thread."""
        for event in self._events:
            event.synchronize()
        return self._copies


def _begin_copy(tensor: Any) -> Any:
    if tensor.device.type in _UNPINNED or local(tensor) is not tensor:
        return tensor.to("cpu", copy=True)
    copy = torch.empty_like(tensor, device="cpu", pin_memory=True)
    return copy.copy_(tensor, non_blocking=True)


def _record(device: Any) -> Any:
    """Returns an event that follows all operations started on this device's current stream."""
    event = torch.Event(device)
    event.record(torch.accelerator.current_stream(device))
    return event
