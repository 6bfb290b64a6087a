"""Names of saved parameters and exported files, and a comparison of parameters with a model. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl.errors import CheckpointError

MODEL_PREFIX = "model/"
"""Prefix of the names of a model's arrays in a state; names of optimizer arrays do not have it."""
NUMPY_FILE, PADDLE_FILE, TORCH_FILE = "model.npz", "model.pdparams", "model.pt"
"""The file of an exported model, for each framework."""
MODEL_FILES = (PADDLE_FILE, NUMPY_FILE, TORCH_FILE)
"""The files of exported models, in the order in which they are searched for in a folder."""


def first_difference(own_shapes: Mapping[str, Any], new_shapes: Mapping[str, Any]) -> str:
    """Describes the first difference between two sets of arrays; "" if there is none.

    Args:
        own_shapes: Name -> shape of the model's arrays.
        new_shapes: Name -> shape of the arrays to load.
    """
    for name, shape in own_shapes.items():
        if name not in new_shapes:
            return f"{name} is missing"
        if tuple(new_shapes[name]) != tuple(shape):
            return f"{name} has shape {list(new_shapes[name])} instead of {list(shape)}"
    unexpected = [name for name in new_shapes if name not in own_shapes]
    return f"unexpected array {unexpected[0]}" if unexpected else ""


def mismatch_error(origin: str, difference: str) -> CheckpointError:
    """Returns the error for arrays that do not fit the model."""
    return CheckpointError(
        f"{origin} belongs to another model: {difference}; name one of this model, or another folder"
    )
