"""Parameters from where they were saved: a checkpoint, the newest of a folder, or an export."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from edl.checkpoints import MANIFEST, Checkpoint, latest_checkpoint, read_checkpoint
from edl.errors import CheckpointError, one_line

if TYPE_CHECKING:
    from edl.model.protocols import Adapter

PathLike = Union[str, "os.PathLike[str]"]
MODEL = "model/"
"""Begins the names of a model's arrays in a state; the optimizer's begin otherwise."""
PLAIN, PADDLE = "model.npz", "model.pdparams"
"""Files of exported models."""


def restore(adapter: Adapter, path: PathLike) -> int | None:
    """Takes over a model's parameters.

    Args:
        adapter: A replica or a worker of the same model.
        path: A checkpoint, a folder of checkpoints, or a folder that `export` wrote.

    Returns:
        The step it was saved at, where that is known.

    Raises:
        CheckpointError: There is none, it is damaged, or it is of another model.
    """
    place = Path(path)
    if (place / MANIFEST).exists():
        return _of(adapter, read_checkpoint(place))
    found = latest_checkpoint(place)
    if found is not None:
        return _of(adapter, found)
    for name in (PADDLE, PLAIN):
        if (place / name).exists():
            adapter.take(_exported(place / name), str(place / name))
            return None
    raise CheckpointError(
        f"{place} holds no model: name a folder of checkpoints, one checkpoint, or an exported "
        f"folder with {PADDLE} or {PLAIN}"
    )


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """The first thing in which two sets of arrays differ, or "".

    Args:
        here: The model's own: name -> shape.
        there: What is to be taken over.
    """
    for name, shape in here.items():
        if name not in there:
            return f"{name} is missing"
        if tuple(there[name]) != tuple(shape):
            return f"{name} has shape {list(there[name])} instead of {list(shape)}"
    more = [name for name in there if name not in here]
    return f"{more[0]} is too much" if more else ""


def refuse(origin: str, what: str) -> CheckpointError:
    """For arrays that differ from the model's."""
    return CheckpointError(
        f"{origin} is of another model: {what}; give this model's own, or another folder"
    )


def _of(adapter: Adapter, found: Checkpoint) -> int:
    arrays = found.arrays()
    own = {name[len(MODEL) :]: one for name, one in arrays.items() if name.startswith(MODEL)}
    if not own:
        raise CheckpointError(f"{found.path} holds no model of edl: its arrays have other names")
    adapter.take(own, str(found.path))
    return found.step


def _exported(path: Path) -> Mapping[str, Any]:
    try:
        if path.name == PADDLE:
            from edl.paddle.network import read  # noqa: PLC0415 - only where it is installed

            return read(path)
        import numpy as np  # noqa: PLC0415 - as above

        with np.load(path) as arrays:
            return dict(arrays)
    except (OSError, ValueError, ImportError) as error:
        raise CheckpointError(f"{path} cannot be read: {one_line(error)}") from error
