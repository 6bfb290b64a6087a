"""Converts tensors of frameworks to numpy arrays."""

from __future__ import annotations

import importlib
from typing import Any


def to_array(values: Any) -> Any:
    """Converts a tensor or a sequence to a numpy array; imports numpy only when called."""
    if hasattr(
        values, "detach"
    ):  # a torch tensor, perhaps on a device, or of a type unknown to numpy
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
    to_numpy = getattr(values, "numpy", None)
    return importlib.import_module("numpy").asarray(values if to_numpy is None else to_numpy())
