"""Restores parameters from a checkpoint, the newest checkpoint in a folder, or an export."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from edl.data.checkpoints import (
    MANIFEST,
    Checkpoint,
    latest_checkpoint,
    load_arrays,
    read_checkpoint,
)
from edl.errors import CheckpointError
from edl.model import frameworks
from edl.model.parameters import MODEL_FILES, MODEL_PREFIX, NUMPY_FILE, PADDLE_FILE, TORCH_FILE

if TYPE_CHECKING:
    from edl.model.protocols import Adapter

PathLike = Union[str, "os.PathLike[str]"]
_TORCH_STATE = ".metadata"
"""A file that only the checkpoints of torch models contain."""


def restore(adapter: Adapter, path: PathLike) -> int | None:
    """Loads saved parameters into a model.

    Args:
        adapter: A replica or a worker of the same model.
        path: A checkpoint, a folder of checkpoints, or a folder written by `export`.

    Returns:
        The step of the checkpoint; None for an export.

    Raises:
        CheckpointError: The checkpoint is missing, damaged, or belongs to another model.
    """
    folder = Path(path)
    if (folder / MANIFEST).exists():
        return _restore_checkpoint(adapter, read_checkpoint(folder))
    checkpoint = latest_checkpoint(folder)
    if checkpoint is not None:
        return _restore_checkpoint(adapter, checkpoint)
    for name in MODEL_FILES:
        if (folder / name).exists():
            adapter.load_parameters(_read_export(folder / name), str(folder / name))
            return None
    raise CheckpointError(
        f"{folder} holds no model: name a checkpoint, a folder of checkpoints, or an export "
        f"with {PADDLE_FILE}, {NUMPY_FILE} or {TORCH_FILE}"
    )


def _restore_checkpoint(adapter: Adapter, checkpoint: Checkpoint) -> int:
    if (checkpoint.path / _TORCH_STATE).exists():
        # only checkpoints of torch models need torch
        parameters = frameworks.load(frameworks.READERS, "torch").read_checkpoint(checkpoint)
        adapter.load_parameters(parameters, str(checkpoint.path))
        return checkpoint.step
    arrays = checkpoint.arrays()
    parameters = {
        name[len(MODEL_PREFIX) :]: array
        for name, array in arrays.items()
        if name.startswith(MODEL_PREFIX)
    }
    if not parameters:
        raise CheckpointError(
            f"{checkpoint.path} holds no model saved by edl: its arrays have other names"
        )
    adapter.load_parameters(parameters, str(checkpoint.path))
    return checkpoint.step


def _read_export(path: Path) -> Mapping[str, Any]:
    if path.name == PADDLE_FILE:
        from edl.model.pickled_arrays import read_arrays  # noqa: PLC0415 - only these files need numpy

        return read_arrays(path)
    if path.name == TORCH_FILE:
        arrays: Mapping[str, Any] = frameworks.load(frameworks.READERS, "torch").read_export(path)
        return arrays
    return load_arrays(path)
