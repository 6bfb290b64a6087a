"""Tensors of which each process of a pod holds a part: those of FSDP2 (`fully_shard`)."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed.tensor import DTensor

from edl.errors import DataError

_HOW = "call fully_shard(model, mesh=mesh) with mesh = init_device_mesh(device, (world_size,))"


def local(tensor: Any) -> Any:
    """Returns this process's part of a tensor, which shares its memory; a whole one as it is."""
    return tensor.detach().to_local() if isinstance(tensor, DTensor) else tensor


def as_shard(part: Any, like: Any) -> Any:
    """Returns `part` as this process's part of a tensor that is divided like another; no copy."""
    if not isinstance(like, DTensor):
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
    """Whether a tensor of an optimizer is divided as its parameter is."""
    return isinstance(parameter, DTensor) and value.dim() == parameter.dim()


def mesh_of(model: Any) -> Any:
    """Returns the mesh of the processes that hold the parameters; None where each holds all.

    Raises:
        DataError: They are divided in another way than FSDP2 does over the processes of one pod.
    """
    named = dict(model.named_parameters())
    meshes = {p.device_mesh for p in named.values() if isinstance(p, DTensor)}
    if not meshes:
        return None
    whole = [name for name, p in named.items() if not isinstance(p, DTensor)]
    if whole:
        raise DataError(f"parameter {whole[0]} is not sharded, and others are: {_HOW}")
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
