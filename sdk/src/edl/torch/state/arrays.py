"""Tensors of a state as arrays by name, as members and checkpoints have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from edl.sync.replica import State
from edl.torch.pods.shards import local

MODEL, OPTIMIZER, OUTER = "model", "optimizer", "outer"
_OPTIMIZERS = (OPTIMIZER, OUTER)
"""Kinds of optimizers in a state: the program's, and that of outer steps."""
VIEWS = {torch.bfloat16: torch.int16}
"""Types that numpy lacks, and those as which their bits travel."""


def unflatten(state: State) -> dict[str, Any]:
    """Returns the state dicts of model, optimizer and schedule that a state was made of."""
    model: dict[str, Any] = {}
    kinds = [kind for kind in _OPTIMIZERS if kind in state.extra]
    entries: dict[str, dict[int, dict[str, Any]]] = {
        kind: {int(index): dict(values) for index, values in state.extra[kind]["values"].items()}
        for kind in kinds
    }
    for key in state.arrays:
        tensor = as_tensor(state, key)
        kind, name = key.split("/", 1)
        if kind == MODEL:
            model[name] = tensor
        else:
            index, name = name.split("/", 1)
            entries[kind].setdefault(int(index), {})[name] = tensor
    tree: dict[str, Any] = {MODEL: model}
    for kind in kinds:
        tree[kind] = {"state": entries[kind], "param_groups": state.extra[kind]["groups"]}
    return {**tree, **{k: v for k, v in state.extra.items() if k == "scheduler"}}


def as_tensor(state: State, key: str) -> Any:
    """Returns a copy of an array of a state as a tensor, of the type that it had: see `as_state`."""
    tensor = torch.from_numpy(np.array(state.arrays[key]))
    types = state.extra["types"]
    return tensor.view(getattr(torch, types[key])) if key in types else tensor


def as_own(read: Any, own: Any) -> Any:
    """Returns what came as JSON with keys of the types that this program's own state has.

    JSON has texts as keys alone: the milestones of a `MultiStepLR` are numbers, and would never be met.
    """
    if isinstance(own, dict) and isinstance(read, dict):
        has_numbers = bool(own) and all(type(key) is int for key in own)
        named = {int(key) if has_numbers else key: value for key, value in read.items()}
        items = {key: as_own(value, own.get(key)) for key, value in named.items()}
        return Counter(items) if isinstance(own, Counter) else items
    if isinstance(own, (list, tuple)) and isinstance(read, list) and len(own) == len(read):
        return [as_own(value, mine) for value, mine in zip(read, own)]
    return read


def as_state(named: Mapping[str, Any], rest: Mapping[str, Any]) -> State:
    """Returns tensors by name as arrays, or this process's parts; notes the types that numpy lacks."""
    arrays: dict[str, np.ndarray] = {}
    types: dict[str, str] = {}
    for name, tensor in named.items():
        flat = local(tensor).detach().cpu()
        if flat.dtype in VIEWS:
            types[name] = str(flat.dtype).split(".")[1]
            flat = flat.contiguous().view(VIEWS[flat.dtype])
        arrays[name] = flat.numpy()
    return State(arrays, {**rest, "types": types})
