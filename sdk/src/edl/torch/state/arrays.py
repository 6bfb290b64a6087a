"""Converts between tensors and the arrays of a state."""

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
"""Kinds of optimizers that a state may contain: the program's optimizer and the outer optimizer."""
VIEWS = {torch.bfloat16: torch.int16}
"""Types that numpy lacks -> types as which their bits are sent."""


def unflatten(state: State) -> dict[str, Any]:
    """Returns the state dicts of model, optimizers and schedule that a state was made from."""
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
    """Returns a copy of a state's array as a tensor of its original type (see `as_state`)."""
    tensor = torch.from_numpy(np.array(state.arrays[key]))
    types = state.extra["types"]
    return tensor.view(getattr(torch, types[key])) if key in types else tensor


def as_own(read: Any, own: Any) -> Any:
    """Gives the dictionary keys of a decoded JSON value the same types as in this program's state.

    All keys in JSON are strings, but the milestones of a `MultiStepLR`, for example, are numbers.

    Args:
        read: The decoded value.
        own: The same value in this program's state.
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
    """Returns tensors, or this process's parts of them, as arrays; records types that numpy lacks."""
    arrays: dict[str, np.ndarray] = {}
    types: dict[str, str] = {}
    for name, tensor in named.items():
        flat = local(tensor).detach().cpu()
        if flat.dtype in VIEWS:
            types[name] = str(flat.dtype).split(".")[1]
            flat = flat.contiguous().view(VIEWS[flat.dtype])
        arrays[name] = flat.numpy()
    return State(arrays, {**rest, "types": types})
