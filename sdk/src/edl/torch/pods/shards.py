"""Sharded tensors of FSDP2 (`fully_shard`): each process of a pod holds a part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch.distributed.tensor import DTensor

from edl.errors import DataError

_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel")
"""torch modules that sum gradients themselves."""
_HOW = "call fully_shard(model, mesh=mesh) with mesh = init_device_mesh(device, (world_size,))"


def local(tensor: Any) -> Any:
    """Returns this process's part of a sharded tensor, without a copy; returns other tensors unchanged."""
    return tensor.detach().to_local() if isinstance(tensor, DTensor) else tensor


def as_shard(part: Any, like: Any) -> Any:
    """Returns `part` as this process's part of a tensor that is sharded like `like`; does not copy."""
    if not isinstance(like, DTensor) or isinstance(part, DTensor):
        return part
    return DTensor.from_local(
        part,
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def is_part_of(value: Any, parameter: Any) -> bool:
    """Returns whether a tensor of an optimizer is sharded like its parameter."""
    return isinstance(parameter, DTensor) and value.dim() == parameter.dim()


def mesh_of(model: Any) -> Any:
    """Returns the mesh over which the parameters are sharded, or None if they are not sharded.

    Raises:
        DataError: The parameters are not sharded over all processes of one pod, or the model is wrapped.
    """
    _check_unwrapped(model)
    named = dict(model.named_parameters())
    meshes = {p.device_mesh for p in named.values() if isinstance(p, DTensor)}
    if not meshes:
        return None
    whole = [name for name, p in named.items() if not isinstance(p, DTensor)]
    if whole:
        raise DataError(f"parameter {whole[0]} is not sharded, but others are: {_HOW}")
    mesh = meshes.pop()
    if meshes or mesh.ndim != 1:
        raise DataError(
            "the model is sharded over a mesh of several dimensions, or over several meshes; EDL "
            f"itself sums gradients between pods: {_HOW}"
        )
    if mesh.size() != dist.get_world_size():
        raise DataError(
            f"the model is sharded over {mesh.size()} of {dist.get_world_size()} processes; the processes "
            f"of one pod hold one replica: {_HOW}, and start them with edl agent --replica"
        )
    return mesh


def check_alone(trainer: str, environ: Mapping[str, str]) -> None:
    """Refuses an unsharded model if other processes of this pod belong to the same trainer.

    Args:
        trainer: The name of this process's trainer.
        environ: The environment, with torchrun's variables if a launcher has started this process.

    Raises:
        DataError: Several processes belong to this trainer.
    """
    size, rank = environ.get("LOCAL_WORLD_SIZE") or "1", environ.get("LOCAL_RANK", "")
    if size != "1" and not trainer.endswith(f":{rank}"):
        raise DataError(
            f"{size} processes of this pod are one trainer, {trainer}, and the model is not sharded: "
            f"{_HOW}, or start one process for each pod"
        )


def _check_unwrapped(model: Any) -> None:
    for module in model.modules():
        name = type(module).__name__
        if name in _WRAPPERS and type(module).__module__.startswith("torch."):
            raise DataError(
                f"the model is wrapped in {name}, which sums gradients itself: give the wrapped "
                "model, or fully_shard it"
            )
