"""Checkpoints in the format of torch.distributed.checkpoint (DCP), written in parts by members.

DCP's `save` needs one process group of torch for all members. Here, the members of a round call
DCP's planner and writer. All members have the same state, so each member makes all members' plans
itself. https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.storage import WriteResult

from edl.data.checkpoints import Checkpoint
from edl.errors import CheckpointError, one_line
from edl.master import protocol
from edl.overriding import override
from edl.sync.replica import GroupModel, State
from edl.sync.saving import Share, StateFiles
from edl.torch.pods.commands import Read
from edl.torch.pods.pod import Pod
from edl.torch.pods.shards import as_shard, local
from edl.torch.state.arrays import MODEL, OPTIMIZER, OUTER, as_state
from edl.torch.state.host_copies import HostCopies
from edl.torch.state.replica import TorchReplica

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
"""Names that a checkpoint's metadata may contain, besides DCP's classes and tensor types."""


Gather = Callable[[Any], list[Any]]
Target = Callable[[Sequence[Any], TensorStorageMetadata], Any]


class DcpFiles(StateFiles):
    """The format of checkpoints of a `TorchReplica`."""

    is_sharded = True

    @override
    def stage(self, replica: GroupModel, rank: int, count: int) -> DcpShare:
        """Copies the tensors that this member writes."""
        if not isinstance(replica, TorchReplica):
            raise TypeError(f"{type(replica)} is not a model of torch")
        return DcpShare(replica, rank, count)

    @override
    def read(self, checkpoint: Checkpoint, extra: dict[str, Any]) -> State:
        """Reads a state, which any number of members may have written.

        Raises:
            CheckpointError: The files cannot be read.
        """
        named = {}
        for path, tensor in _read(checkpoint, (MODEL, OPTIMIZER, OUTER), self.target):
            name = path[1] if path[0] == MODEL else f"{path[2]}/{path[3]}"
            named[f"{path[0]}/{name}"] = tensor
        return as_state(named, extra)

    def target(self, path: Sequence[Any], about: TensorStorageMetadata) -> Any:  # noqa: ARG002 - PodFiles uses `path`
        """Returns memory for a tensor, given its path in `TorchReplica.tensors`."""
        return torch.empty(about.size, dtype=about.properties.dtype, device="cpu")


def read_model(checkpoint: Checkpoint) -> dict[str, Any]:
    """Reads the model's tensors; returns them by name.

    Raises:
        CheckpointError: The files cannot be read.
    """
    return {str(path[1]): t for path, t in _read(checkpoint, (MODEL,), DcpFiles().target)}


class DcpShare(Share):
    """A copy of the tensors that one member writes."""

    def __init__(
        self, replica: TorchReplica, rank: int, count: int, gather: Gather | None = None
    ) -> None:
        """Begins to copy the tensors to the host.

        Args:
            replica: This member's replica; all members have the same state.
            rank: This member's rank.
            count: Number of members that write.
            gather: Returns the plans of all processes; needed if each has only a part of the state.
        """
        self.rank, self.extra = rank, replica.values()
        self._planner = DefaultSavePlanner()
        self._planner.set_up_planner(replica.tensors(), None, is_coordinator=rank == 0)
        plan = self._planner.create_local_plan()
        all_plans = [plan] * count if gather is None else gather(plan)
        plans, self._metadata = self._planner.create_global_plan(all_plans)
        self._plan = FileSystemWriter("").prepare_global_plan(plans)[rank]
        live = self._planner.state_dict
        names = {item.index.fqn for item in self._plan.items}
        self._copies = HostCopies({name: live[name] for name in sorted(names)})

    @override
    def write(self, folder: Path) -> protocol.Json:
        plan = self._planner.finish_plan(self._plan)
        self._planner.state_dict = self._copies.wait()
        results = FileSystemWriter(folder).write_data(plan, self._planner).wait()
        return {"tensors": [_as_json(result) for result in results]}

    @override
    def finish(self, folder: Path, results: Sequence[protocol.Json]) -> None:
        parts = [[_from_json(entry) for entry in result["tensors"]] for result in results]
        FileSystemWriter(folder).finish(self._metadata, parts)


class PodFiles(DcpFiles):
    """The format of checkpoints of a sharded model; each process of a pod writes its part."""

    def __init__(self, pod: Pod, replica: TorchReplica) -> None:
        """Reads nothing yet."""
        self._pod, self._replica = pod, replica
        self._staged: DcpShare | None = None

    def stage_together(self, replica: TorchReplica) -> None:
        """Copies this process's part; all processes of the pod call it before `stage`."""
        self._staged = DcpShare(replica, self._pod.rank, self._pod.size, self._gather)

    @override
    def stage(self, replica: GroupModel, rank: int, count: int) -> DcpShare:  # noqa: ARG002 - the interface has it
        """Returns the part that `stage_together` copied."""
        staged, self._staged = self._staged, None
        if staged is None:
            raise CheckpointError("no part was copied for this checkpoint")
        return staged

    @override
    def read(self, checkpoint: Checkpoint, extra: dict[str, Any]) -> State:
        """Reads this process's part; the first process also makes the others read theirs."""
        if self._pod.is_first:
            self._pod.announce(Read(str(checkpoint.path), extra))
        return super().read(checkpoint, extra)

    @override
    def target(self, path: Sequence[Any], about: TensorStorageMetadata) -> Any:
        """Returns memory for this process's part of a sharded tensor."""
        like = self._replica.like(path)
        if like is None or like.shape != about.size:
            return super().target(path, about)
        part = torch.empty(local(like).shape, dtype=about.properties.dtype, device="cpu")
        return as_shard(part, like)

    def _gather(self, plan: Any) -> list[Any]:
        plans: list[Any] = [None] * self._pod.size
        dist.all_gather_object(plans, plan, group=self._pod.group)
        return plans


class _Reader(FileSystemReader):  # type: ignore[misc]  # torch's base class is untyped
    """Reads DCP's metadata, which is a pickle, without running code that it may contain."""

    def read_metadata(self, *_: Any, **__: Any) -> Any:
        """Returns a `Metadata`."""
        raw = (Path(self.path) / _METADATA).read_bytes()
        return _Unpickler(io.BytesIO(raw)).load()


class _Unpickler(pickle.Unpickler):
    @override
    def find_class(self, module: str, name: str) -> Any:
        """Returns a class if a checkpoint's metadata may contain it."""
        is_type = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_type or module == f"{_DCP}.metadata" or (module, name) in _PICKLED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"its metadata names {module}.{name}, which is not DCP's")


def _read(
    checkpoint: Checkpoint, kinds: Collection[str], target: Target
) -> list[tuple[Sequence[Any], Any]]:
    """Returns tensors with their paths in `TorchReplica.tensors`.

    Args:
        checkpoint: The checkpoint.
        kinds: First parts of the paths to read.
        target: Returns memory for a tensor.

    Raises:
        CheckpointError: The files cannot be read.
    """
    try:
        reader = _Reader(checkpoint.path)
        metadata = reader.read_metadata()
        paths = metadata.planner_data
        flat = {
            name: target(paths[name], about)
            for name, about in metadata.state_dict_metadata.items()
            if isinstance(about, TensorStorageMetadata) and paths[name][0] in kinds
        }
        dcp.load(flat, storage_reader=reader, no_dist=True)
        return [(paths[name], tensor) for name, tensor in flat.items()]
    except dcp.CheckpointException as failure:  # DCP derives it from `BaseException`
        causes = [error for error, _ in failure.failures.values()]
        raise _unreadable(checkpoint, *causes, failure) from failure
    except Exception as error:  # a damaged file raises errors of many types
        raise _unreadable(checkpoint, error) from error


def _unreadable(checkpoint: Checkpoint, *causes: BaseException) -> CheckpointError:
    return CheckpointError(
        f"{checkpoint.path} cannot be read as a checkpoint of torch ({one_line(causes[0])}): name "
        "another folder, or remove it"
    )


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
