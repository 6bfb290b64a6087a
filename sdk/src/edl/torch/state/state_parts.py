"""Splits a torch model's state into parts that newcomers get while the others train (decision 0048)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from edl.errors import CheckpointError
from edl.sync.parts import ArrayGroup
from edl.sync.replica import State
from edl.torch.pods.shards import as_shard, is_part_of, local
from edl.torch.state.arrays import MODEL, OPTIMIZER, VIEWS, as_state, as_tensor, unflatten
from edl.torch.state.norm_statistics import NormStatistics

_ELEMENTWISE = (
    "SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop",
)  # fmt: skip
"""Optimizers of torch that update each element separately."""
_NORM = "norm"


class StateParts:
    """The state of a model and its optimizer, readable and writable element by element.

    For a sharded model, this is only this process's part of the state.
    """

    def __init__(self, model: Any, optimizer: Any, statistics: NormStatistics) -> None:
        """Reads nothing yet."""
        self._model, self._optimizer, self._statistics = model, optimizer, statistics
        optimized = [p for group in optimizer.param_groups for p in group["params"]]
        names = {parameter: name for name, parameter in model.named_parameters()}
        frozen = [parameter for parameter in names if parameter not in set(optimized)]
        self._parameters = [*optimized, *frozen]
        self._names = [names[parameter] for parameter in self._parameters]
        every_name = model.named_parameters(remove_duplicate=False)
        self._first_names = {name: names[parameter] for name, parameter in every_name}
        """Name -> first name of the same parameter, because layers may share it under several names."""
        self._in_parts: frozenset[str] = frozenset()
        """Names in the groups that `groups` last returned; they lack tensors that the optimizer's
        first step adds."""
        kind = type(optimizer)
        self._is_elementwise = (
            kind.__module__.startswith("torch.optim") and kind.__name__ in _ELEMENTWISE
        )

    def groups(self) -> list[ArrayGroup]:
        """Returns all large arrays of `state`, in groups; empty if the state cannot be cut."""
        if not self._is_elementwise:
            return []
        groups: list[ArrayGroup] = []
        for index in range(len(self._parameters)):
            tensors = self._sliced(index)
            if not all(local(tensor).is_contiguous() for tensor in tensors.values()):
                return []  # a flat view of a tensor that is not contiguous would be a copy
            item_bytes = sum(tensor.element_size() for tensor in tensors.values())
            size = local(self._parameters[index]).numel()
            groups.append(ArrayGroup(tuple(tensors), size, item_bytes))
        self._in_parts = frozenset(name for group in groups for name in group.names)
        return groups

    def read_slice(self, name: str, start: int, stop: int) -> np.ndarray:
        """Returns a copy of elements [start, stop) of an array, along one axis in C order."""
        flat = self._flat(name)[start:stop].clone().cpu()
        array: np.ndarray = flat.view(VIEWS.get(flat.dtype, flat.dtype)).numpy()
        return array

    def write_slice(self, name: str, start: int, elements: np.ndarray) -> None:
        """Replaces an array's elements from `start` on."""
        target = self._flat(name)[start : start + len(elements)]
        target.copy_(torch.from_numpy(np.array(elements)).view(target.dtype))

    def rest(self, values: dict[str, Any]) -> State:
        """Returns the part of the state that is in no array group.

        Args:
            values: The entries of the state that are not tensors.
        """
        named: dict[str, Any] = {}
        for index, parameter in enumerate(self._parameters):
            for key, value in self._optimizer.state.get(parameter, {}).items():
                name = f"{OPTIMIZER}/{index}/{key}"
                if isinstance(value, torch.Tensor) and name not in self._in_parts:
                    named[name] = value.clone()
        for name, tensor in self._model.state_dict().items():
            if f"{MODEL}/{self._first_names.get(name, name)}" not in self._in_parts:
                named[f"{MODEL}/{name}"] = tensor.clone()
        for number, tensor in enumerate(self._statistics.saved):
            named[f"{_NORM}/{number}"] = tensor.clone()
        return as_state(named, {**values, "in_parts": sorted(self._in_parts)})

    def load_rest(self, rest: State) -> dict[str, Any]:
        """Loads the part of the state that is in no array group; returns the tree of state dicts.

        Raises:
            CheckpointError: The state belongs to another model.
        """
        norms = [key for key in rest.arrays if key.startswith(f"{_NORM}/")]
        self._statistics.saved = [as_tensor(rest, key) for key in norms]
        named = {key: array for key, array in rest.arrays.items() if key not in norms}
        tree = unflatten(State(named, rest.extra))
        for name in rest.extra["in_parts"]:
            kind, place = name.split("/", 1)
            if kind == OPTIMIZER:
                index, key = place.split("/", 1)
                zeros = torch.zeros_like(self._parameters[int(index)], requires_grad=False)
                tree[OPTIMIZER]["state"].setdefault(int(index), {})[key] = zeros
        self.divide(tree)
        norm_names = self._statistics.names_in(self._model)
        tensors = {n: t for n, t in tree[MODEL].items() if n not in norm_names}
        try:
            self._model.load_state_dict(tensors, strict=False)
            self._optimizer.load_state_dict(tree[OPTIMIZER])
        except (ValueError, RuntimeError, KeyError) as error:
            raise CheckpointError(
                f"the other members have the state of another model: {error}"
            ) from error
        return tree

    def divide(self, tree: dict[str, Any]) -> None:
        """Shards the tensors in the given state dicts in the same way as the model's."""
        own = self._model.state_dict()
        tree[MODEL] = {name: as_shard(part, own.get(name)) for name, part in tree[MODEL].items()}
        for index, entries in tree.get(OPTIMIZER, {"state": {}})["state"].items():
            for name, value in entries.items():
                if isinstance(value, torch.Tensor) and is_part_of(value, self._parameters[index]):
                    entries[name] = as_shard(value, self._parameters[index])

    def _sliced(self, index: int) -> dict[str, Any]:
        """Returns a parameter and the optimizer's tensors of the same shape, by name."""
        parameter = self._parameters[index]
        state = self._optimizer.state.get(parameter, {})
        tensors = {
            f"{OPTIMIZER}/{index}/{key}": value
            for key, value in state.items()
            if isinstance(value, torch.Tensor) and value.dim() and value.shape == parameter.shape
        }
        return {f"{MODEL}/{self._names[index]}": parameter, **tensors}

    def _flat(self, name: str) -> Any:
        kind, place = name.split("/", 1)
        if kind == MODEL:
            tensor = self._parameters[self._names.index(place)]
        else:
            index, key = place.split("/", 1)
            tensor = self._optimizer.state[self._parameters[int(index)]][key]
        return local(tensor).detach().view(-1)
