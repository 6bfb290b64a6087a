"""Converts the frameworks' tensors to numpy arrays."""

from __future__ import annotations

import importlib
from typing import Any


def to_array(values: Any) -> Any:
    """Converts a tensor or a sequence to a numpy array; imports numpy only when called."""
    # a torch tensor may be on another device, or have a type that numpy does not know
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
    to_numpy = getattr(values, "numpy", None)
    return importlib.import_module("numpy").asarray(values if to_numpy is None else to_numpy())
