"""Small models for tests of parameter servers."""

from typing import Any

import numpy as np
from edl_protocol.pserver import Model, Piece

from pserver.memory import Memory, Views
from pserver.shard import PushedGradients, Shard
from runtime.call_checks import check_fields

Json = dict[str, Any]


def model(**changes: Any) -> Model:
    """Two dense parameters and one table."""
    fields: Json = {
        "parameters": {"w": [2, 3], "b": [2]},
        "tables": {"words": {"dim": 2, "init": 0.5, "seed": 7}},
        "optimizer": {"kind": "sgd", "learning_rate": 1.0},
        "rules": {},
    }
    return check_fields(Model, {**fields, **changes})


ALL = [Piece(name="w", start=0, stop=6), Piece(name="b", start=0, stop=2)]
"""Everything at one server."""


def make_shard(model_: Model | None = None, max_bytes: int | None = None) -> Shard:
    """One server that holds everything, from zeros."""
    memory = Memory(max_bytes)
    zeros = np.zeros(8, np.float32)
    return Shard(model_ or model(), ALL, zeros, memory, Views(memory))


def push(number: int = 1, **changes: Any) -> PushedGradients:
    """Gradients of ones for what is dense."""
    fields: Json = {
        "process": "p",
        "number": number,
        "version": 0,
        "records": 10,
        "dense": np.ones(8, np.float32),
        "sparse": {},
    }
    return PushedGradients(**{**fields, **changes})


def rows(*ids: int, value: float = 1.0, dim: int = 2) -> tuple[Any, Any]:
    """Gradients of rows."""
    return np.array(ids, np.int64), np.full((len(ids), dim), value, np.float32)
