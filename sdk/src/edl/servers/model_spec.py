"""The description of a model for the servers, checked before it is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from edl.errors import DataError, one_line
from edl.master.protocol import Json
from edl.servers.worker import Worker
from edl_protocol.fields import to_json
from edl_protocol.pserver import Model, Rules, Table

EVICTIONS = (None, "lru", "lfu")


class ModelSpec:
    """Shapes, tables, optimizer, rules and initial parameters of a job's model."""

    def __init__(self, worker: Worker, code: Mapping[str, str], rules: Rules) -> None:
        """Reads the description from a worker.

        Raises:
            DataError: The worker returned a value that servers cannot store.
        """
        self.initial = {name: _floats(name, array) for name, array in worker.initial().items()}
        """Initial dense parameters of this trainer; the servers use only the first trainer's."""
        self.shapes = {name: array.shape for name, array in self.initial.items()}
        self.dims = {name: int(table.dim) for name, table in worker.tables().items()}
        tables = {name: _checked(name, table) for name, table in worker.tables().items()}
        if not self.initial and not tables:
            raise DataError("nothing to train: the model has no parameters and no tables")
        parameters = {name: list(shape) for name, shape in self.shapes.items()}
        model = Model(parameters, tables, dict(worker.optimizer()), rules, dict(code))
        self.payload: Json = to_json(model)
        """The description in the protocol's format."""
        try:
            json.dumps(self.payload, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise DataError(f"optimizer: {one_line(error)}; use numbers and strings") from error


def _checked(name: str, table: Table) -> Table:
    """Checks a table, and returns it with its numbers converted to Python's types.

    Raises:
        DataError: A value is out of range.
    """
    for option in ("admit_after", "evict_after", "max_rows"):
        value = getattr(table, option)
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if value is not None and not is_count:
            raise DataError(
                f"table {name!r}: {option} is {value!r}: it must be a whole number, at least 1"
            )
    if table.evict not in EVICTIONS:
        kinds = ", ".join(repr(kind) for kind in EVICTIONS if kind)
        raise DataError(
            f"table {name!r}: evict is {table.evict!r}: it must be one of {kinds}, or None"
        )
    return replace(table, dim=int(table.dim), init=float(table.init), seed=int(table.seed))


def _floats(name: str, values: Any) -> Any:
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.floating):
        raise DataError(f"parameter {name!r} is {array.dtype}: parameters must be floating point")
    if not np.isfinite(array).all():
        raise DataError(f"the initial value of parameter {name!r} has NaN or infinite elements")
    return array.astype(np.float32)  # a copy, because the worker changes its array
