"""A model of torch with its optimizer, as the group needs it: its state, and one step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edl.data.checkpoints import Checkpoint
from edl.errors import CheckpointError, DataError, one_line
from edl.sync.replica import State
from edl.torch.buckets import GradientBuckets
from edl.torch.norm_statistics import NormStatistics

_FILE = "state.pt"
_MODEL, _OPTIMIZER = "model", "optimizer"
_VIEWS = {torch.bfloat16: torch.int16}
"""Types that numpy lacks, and those as which their bits travel."""


class TorchReplica:
    """A `GroupModel` of a torch module, an optimizer, and perhaps a schedule of the rate."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        scheduler: Any | None,
        before_step: Callable[[], object] | None,
        tail: int,
    ) -> None:
        """Makes gradients views of buckets.

        Args:
            model: A `torch.nn.Module`.
            optimizer: Of its parameters.
            scheduler: A `torch.optim.lr_scheduler`, stepped after each step.
            before_step: Called before the optimizer, for example to clip the gradient.
            tail: As in `GradientBuckets`.
        """
        self.model, self._optimizer, self._scheduler = model, optimizer, scheduler
        self._before_step = before_step
        self._check_optimizer()
        self.buckets = GradientBuckets(model.named_parameters(), tail)
        self.size = self.buckets.size
        self.statistics = NormStatistics(model)

    def signature(self) -> str:
        """Digest of names, types and shapes: models with another one cannot train together."""
        rows = [[n, str(t.dtype), list(t.shape)] for n, t in self.model.state_dict().items()]
        text = json.dumps([rows, type(self._optimizer).__name__])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def write_gradient(self, flat: np.ndarray) -> None:
        """As in `GroupModel`."""
        offset, values = 0, torch.from_numpy(flat)
        for gradient in self.buckets.gradients():
            gradient.copy_(values[offset : offset + gradient.numel()])
            offset += gradient.numel()

    def step(self, scale: float) -> None:
        """As in `GroupModel`."""
        rates = [group["lr"] for group in self._optimizer.param_groups]
        if self._before_step is not None:
            self._before_step()
        for group, rate in zip(self._optimizer.param_groups, rates):
            group["lr"] = rate * scale
        self._optimizer.step()
        for group, rate in zip(self._optimizer.param_groups, rates):
            group["lr"] = rate
        if self._scheduler is not None:
            self._scheduler.step()
        self.statistics.forget()
        self.buckets.clear()

    def clear(self) -> None:
        """As in `GroupModel`; what forward has done to running statistics is undone, too."""
        self.statistics.restore()
        self.buckets.clear()

    def move(self) -> None:
        """As `clear`, where sums that were abandoned may still be under way."""
        self.statistics.move()
        self.buckets.move()
        self.clear()

    def state(self) -> State:
        """As in `GroupModel`; tensors on the host are views."""
        arrays: dict[str, np.ndarray] = {}
        extra: dict[str, Any] = {"types": {}}
        for name, tensor in self.model.state_dict().items():
            _put(arrays, extra, f"{_MODEL}/{name}", tensor)
        state = self._optimizer.state_dict()
        values: dict[str, dict[str, Any]] = {}
        for index, entries in state["state"].items():
            values[str(index)] = {}
            for name, value in entries.items():
                if isinstance(value, torch.Tensor):
                    _put(arrays, extra, f"{_OPTIMIZER}/{index}/{name}", value)
                else:
                    values[str(index)][name] = value
        extra["optimizer"] = {"groups": state["param_groups"], "values": values}
        if self._scheduler is not None:
            extra["scheduler"] = self._scheduler.state_dict()
        return State(arrays, _as_json(extra))

    def load(self, state: State) -> None:
        """As in `GroupModel`."""
        tree = unflatten(state)
        own = self.model.state_dict()
        for name in sorted(own.keys() | tree[_MODEL].keys()):
            mine, other = own.get(name), tree[_MODEL].get(name)
            if mine is None or other is None or mine.shape != other.shape:
                shapes = [None if t is None else list(t.shape) for t in (mine, other)]
                raise CheckpointError(
                    f"{name} is of shape {shapes[1]} in the state, and {shapes[0]} in this model: "
                    "it is of another model: give this model's own, or another folder"
                )
        try:
            self.model.load_state_dict(tree[_MODEL])
            self._optimizer.load_state_dict(tree[_OPTIMIZER])
            if self._scheduler is not None and "scheduler" in tree:
                self._scheduler.load_state_dict(tree["scheduler"])
        except (ValueError, RuntimeError, KeyError) as error:
            raise CheckpointError(
                f"the state is of another model ({one_line(error)}): give this model's own, or another "
                "folder"
            ) from error
        self.statistics.forget()
        self.buckets.clear()

    def _check_optimizer(self) -> None:
        name = type(self._optimizer).__name__
        if isinstance(self._optimizer, torch.optim.LBFGS):
            raise DataError(
                f"{name} computes losses itself and cannot use gradients that were summed: use another "
                "optimizer, such as AdamW"
            )
        if isinstance(self._scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise DataError(
                "ReduceLROnPlateau waits for a metric that a step does not have: use a schedule by "
                "steps, such as CosineAnnealingLR"
            )
        trained = {p for p in self.model.parameters() if p.requires_grad}
        optimized = {p for group in self._optimizer.param_groups for p in group["params"]}
        if not optimized <= set(self.model.parameters()):
            raise DataError(
                "the optimizer has parameters that are not of the model: make it of "
                "model.parameters()"
            )
        if trained and not trained & optimized:
            raise DataError(
                "the optimizer has none of the model's parameters: make it of model.parameters()"
            )


class TorchFiles:
    """Checkpoints as `torch.save` writes them: `state.pt` with the state dicts by name."""

    def write(self, folder: Path, state: State) -> None:
        """Writes the arrays of a state; see `edl.sync.saving.StateFiles`."""
        torch.save(unflatten(state), folder / _FILE)

    def read(self, checkpoint: Checkpoint, extra: dict[str, Any]) -> State:
        """Reads what `write` has written.

        Raises:
            CheckpointError: It cannot be read.
        """
        tree = self._tree(checkpoint)
        arrays: dict[str, np.ndarray] = {}
        about: dict[str, Any] = {"types": {}}
        for name, tensor in tree[_MODEL].items():
            _put(arrays, about, f"{_MODEL}/{name}", tensor)
        for index, entries in tree[_OPTIMIZER]["state"].items():
            for name, value in entries.items():
                if isinstance(value, torch.Tensor):
                    _put(arrays, about, f"{_OPTIMIZER}/{index}/{name}", value)
        return State(arrays, {**extra, **about})

    def model(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Reads the tensors of the model alone, by name.

        Raises:
            CheckpointError: They cannot be read.
        """
        tensors: dict[str, Any] = self._tree(checkpoint)[_MODEL]
        return tensors

    def _tree(self, checkpoint: Checkpoint) -> dict[str, Any]:
        path = checkpoint.path / _FILE
        try:
            tree: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged archive raises nearly anything
            raise CheckpointError(f"{path} cannot be read: {one_line(error)}") from error
        return tree


def unflatten(state: State) -> dict[str, Any]:
    """Returns the state dicts of model, optimizer and schedule that a state was made of."""
    types = state.extra["types"]
    model: dict[str, Any] = {}
    entries: dict[int, dict[str, Any]] = {
        int(index): dict(values) for index, values in state.extra["optimizer"]["values"].items()
    }
    for key, array in state.arrays.items():
        tensor = torch.from_numpy(np.array(array))
        if key in types:
            tensor = tensor.view(getattr(torch, types[key]))
        kind, name = key.split("/", 1)
        if kind == _MODEL:
            model[name] = tensor
        else:
            index, name = name.split("/", 1)
            entries.setdefault(int(index), {})[name] = tensor
    groups = state.extra["optimizer"]["groups"]
    tree = {_MODEL: model, _OPTIMIZER: {"state": entries, "param_groups": groups}}
    return {**tree, **{k: v for k, v in state.extra.items() if k == "scheduler"}}


def _put(arrays: dict[str, np.ndarray], extra: dict[str, Any], name: str, tensor: Any) -> None:
    """Adds a tensor as an array; notes its type where numpy lacks it."""
    flat = tensor.detach().cpu()
    if flat.dtype in _VIEWS:
        extra["types"][name] = str(flat.dtype).split(".")[1]
        flat = flat.contiguous().view(_VIEWS[flat.dtype])
    arrays[name] = flat.numpy()


def _as_json(extra: dict[str, Any]) -> dict[str, Any]:
    try:
        text = json.dumps(extra)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"the state of optimizer or scheduler holds something that is no number, text or list: {error}"
        ) from error
    parsed: dict[str, Any] = json.loads(text)
    return parsed
