"""Names of saved parameters, and the check that saved parameters belong to a model. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl.errors import CheckpointError

MODEL_PREFIX = "model/"
"""Starts the names of a model's arrays in a state; names of optimizer arrays start otherwise."""
NUMPY_FILE, PADDLE_FILE, TORCH_FILE = "model.npz", "model.pdparams", "model.pt"
"""Files of exported models."""
MODEL_FILES = (PADDLE_FILE, NUMPY_FILE, TORCH_FILE)
"""In the order in which a folder is searched for them."""


def first_difference(own_shapes: Mapping[str, Any], new_shapes: Mapping[str, Any]) -> str:
    """Describes the first difference between two sets of arrays; "" if there is none.

    Args:
        own_shapes: Of the model's own arrays: name -> shape.
        new_shapes: Of the arrays to be loaded.
    """
    for name, shape in own_shapes.items():
        if name not in new_shapes:
            return f"{name} is missing"
        if tuple(new_shapes[name]) != tuple(shape):
            return f"{name} has shape {list(new_shapes[name])} instead of {list(shape)}"
    unexpected = [name for name in new_shapes if name not in own_shapes]
    return f"unexpected array {unexpected[0]}" if unexpected else ""


def mismatch_error(origin: str, difference: str) -> CheckpointError:
    """Returns the error for arrays that differ from the model's."""
    return CheckpointError(
        f"{origin} is of another model: {difference}; give this model's own, or another folder"
    )
