"""The description of a model that the servers receive, checked before it is sent."""

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
    """Shapes, tables, optimizer and rules of a job, and its initial parameters."""

    def __init__(self, worker: Worker, code: Mapping[str, str], rules: Rules) -> None:
        """Reads them from the worker.

        Raises:
            DataError: It returned a value that no server can store.
        """
        self.initial = {name: _floats(name, array) for name, array in worker.initial().items()}
        """Initial dense parameters of this trainer; the servers use those of the first one."""
        self.shapes = {name: array.shape for name, array in self.initial.items()}
        self.dims = {name: int(table.dim) for name, table in worker.tables().items()}
        tables = {name: _checked(name, table) for name, table in worker.tables().items()}
        if not self.initial and not tables:
            raise DataError("the model has no parameters and no tables: there is nothing to train")
        parameters = {name: list(shape) for name, shape in self.shapes.items()}
        model = Model(parameters, tables, dict(worker.optimizer()), rules, dict(code))
        self.payload: Json = to_json(model)
        """The description as the protocol sends it."""
        try:
            json.dumps(self.payload, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise DataError(f"optimizer: {one_line(error)}; write numbers and texts") from error


def _checked(name: str, table: Table) -> Table:
    """Returns a table whose numbers are of Python's types.

    Raises:
        DataError: A value is out of range.
    """
    for option in ("admit_after", "evict_after", "max_rows"):
        value = getattr(table, option)
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if value is not None and not whole:
            raise DataError(f"table {name!r}: {option} is {value!r}: write a whole number from 1")
    if table.evict not in EVICTIONS:
        kinds = ", ".join(repr(kind) for kind in EVICTIONS if kind)
        raise DataError(f"table {name!r}: evict is {table.evict!r}: write one of {kinds}, or None")
    return replace(table, dim=int(table.dim), init=float(table.init), seed=int(table.seed))


def _floats(name: str, values: Any) -> Any:
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.floating):
        raise DataError(f"parameter {name!r} is {array.dtype}: parameters are floating point")
    if not np.isfinite(array).all():
        raise DataError(f"parameter {name!r} starts with NaN or infinity")
    return array.astype(np.float32)  # a copy: the worker trains on its own
