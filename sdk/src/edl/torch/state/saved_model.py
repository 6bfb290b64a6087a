"""Reads a torch model's parameters from checkpoints and exports, as arrays by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from edl.data.checkpoints import Checkpoint
from edl.errors import CheckpointError, one_line
from edl.model.arrays import to_array
from edl.torch.state.dcp_files import read_model


def read_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    """Reads the parameters of a checkpoint.

    Raises:
        CheckpointError: The checkpoint cannot be read.
    """
    return _arrays(read_model(checkpoint), str(checkpoint.path))


def read_export(path: Path) -> dict[str, Any]:
    """Reads the parameters that `edl train --export` wrote.

    Raises:
        CheckpointError: The file cannot be read, or does not hold tensors by name.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged archive raises errors of many types
        raise CheckpointError(f"{path} cannot be read: {one_line(error):.300}") from error
    return _arrays(content, str(path))


def _arrays(content: Any, origin: str) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{origin} holds {type(content).__name__} instead of tensors by name")
    for name, tensor in content.items():
        if not isinstance(tensor, torch.Tensor):
            raise CheckpointError(
                f"{origin} holds {name!r:.80}, which is not a tensor: save the module's state_dict()"
            )
    return {str(name): to_array(tensor) for name, tensor in content.items()}
