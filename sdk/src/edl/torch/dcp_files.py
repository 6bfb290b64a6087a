"""Checkpoints in the format of torch.distributed.checkpoint (DCP), each member's part by itself.

DCP's own `save` needs a process group of torch that all members have; here its planner and its
writer are called by the members of a round. All have the same state, so each makes the plan of all.
https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.storage import WriteResult

from edl.data.checkpoints import Checkpoint
from edl.errors import CheckpointError, one_line
from edl.master import protocol
from edl.sync.replica import GroupModel, State
from edl.torch.arrays import MODEL, OPTIMIZER, OUTER, as_state
from edl.torch.replica import TorchReplica

_METADATA = ".metadata"
_DCP = "torch.distributed.checkpoint"
_PICKLED = {
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("pathlib._local", "PosixPath"),
    ("collections", "OrderedDict"),
    (f"{_DCP}.filesystem", "_StorageInfo"),
}
"""What the metadata of a checkpoint may name, beside DCP's own descriptions and types of tensors."""


class DcpFiles:
    """The files of a `TorchReplica`'s checkpoints; see `edl.sync.saving.StateFiles`."""

    is_sharded = True

    def stage(self, replica: GroupModel, rank: int, count: int) -> DcpShare:
        """As in `StateFiles`; only this member's tensors are copied."""
        if not isinstance(replica, TorchReplica):
            raise TypeError(f"{type(replica)} is no model of torch")
        return DcpShare(replica, rank, count)

    def read(self, checkpoint: Checkpoint, extra: dict[str, Any]) -> State:
        """As in `StateFiles`; whatever number of members has written it.

        Raises:
            CheckpointError: It cannot be read.
        """
        named = {}
        for path, tensor in _read(checkpoint, (MODEL, OPTIMIZER, OUTER)):
            name = path[1] if path[0] == MODEL else f"{path[2]}/{path[3]}"
            named[f"{path[0]}/{name}"] = tensor
        return as_state(named, extra)


def read_model(checkpoint: Checkpoint) -> dict[str, Any]:
    """Reads the tensors of the model alone, by name.

    Raises:
        CheckpointError: They cannot be read.
    """
    return {str(path[1]): tensor for path, tensor in _read(checkpoint, (MODEL,))}


class DcpShare:
    """A copy of the tensors that one member writes; see `edl.sync.saving.Share`."""

    def __init__(self, replica: TorchReplica, rank: int, count: int) -> None:
        """Copies them to the host.

        Args:
            replica: Of this member; all members have the same state.
            rank: This member's.
            count: Members that write.
        """
        self.rank, self.extra = rank, replica.values()
        self._planner = DefaultSavePlanner()
        self._planner.set_up_planner(replica.tensors(), None, is_coordinator=rank == 0)
        plan = self._planner.create_local_plan()
        plans, self._metadata = self._planner.create_global_plan([plan] * count)
        self._plan = FileSystemWriter("").prepare_global_plan(plans)[rank]
        live = self._planner.state_dict
        names = {item.index.fqn for item in self._plan.items}
        self._planner.state_dict = {n: live[n].detach().to("cpu", copy=True) for n in sorted(names)}

    def write(self, folder: Path) -> protocol.Json:
        """As in `Share`."""
        plan = self._planner.finish_plan(self._plan)
        results = FileSystemWriter(folder).write_data(plan, self._planner).wait()
        return {"tensors": [_as_json(result) for result in results]}

    def finish(self, folder: Path, results: Sequence[protocol.Json]) -> None:
        """As in `Share`."""
        parts = [[_from_json(entry) for entry in result["tensors"]] for result in results]
        FileSystemWriter(folder).finish(self._metadata, parts)


class _Reader(FileSystemReader):  # type: ignore[misc]  # torch has no types here
    """A reader of DCP's metadata, a pickle, that runs no other code."""

    def read_metadata(self, *_: Any, **__: Any) -> Any:
        """Returns a `Metadata`."""
        raw = (Path(self.path) / _METADATA).read_bytes()
        return _Unpickler(io.BytesIO(raw)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Returns a class that may be in the metadata of a checkpoint."""
        is_type = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_type or module == f"{_DCP}.metadata" or (module, name) in _PICKLED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"its metadata names {module}.{name}, which is not DCP's")


def _read(checkpoint: Checkpoint, kinds: Collection[str]) -> list[tuple[Sequence[Any], Any]]:
    """Returns tensors, and where `TorchReplica.tensors` has each.

    Raises:
        CheckpointError: They cannot be read.
    """
    try:
        reader = _Reader(checkpoint.path)
        metadata = reader.read_metadata()
        paths = metadata.planner_data
        flat = {
            name: torch.empty(about.size, dtype=about.properties.dtype)
            for name, about in metadata.state_dict_metadata.items()
            if isinstance(about, TensorStorageMetadata) and paths[name][0] in kinds
        }
        dcp.load(flat, storage_reader=reader, no_dist=True)
        return [(paths[name], tensor) for name, tensor in flat.items()]
    except Exception as error:  # a damaged file raises nearly anything
        raise CheckpointError(
            f"{checkpoint.path} cannot be read as a checkpoint of torch ({one_line(error)}): name "
            "another folder, or remove it"
        ) from error


def _as_json(result: Any) -> protocol.Json:
    index, stored = result.index, result.storage_data
    return {
        "name": index.fqn,
        "offset": None if index.offset is None else list(index.offset),
        "index": index.index,
        "bytes": result.size_in_bytes,
        "file": [stored.relative_path, stored.offset, stored.length],
    }


def _from_json(entry: protocol.Json) -> Any:
    index = MetadataIndex(entry["name"], entry["offset"], entry["index"])
    return WriteResult(index, entry["bytes"], _StorageInfo(*entry["file"]))
