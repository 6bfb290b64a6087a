"""What a worker trains, as the servers are told; checked here, so that errors name the program's part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from edl.errors import DataError, one_line
from edl.servers.worker import Worker

Json = dict[str, Any]


class Model:
    """Shapes, tables, optimizer and rules of a job; and its first parameters, if asked for."""

    def __init__(self, worker: Worker, code: Mapping[str, str], rules: Mapping[str, Any]) -> None:
        """Asks the worker.

        Raises:
            DataError: It says something that no server could hold.
        """
        self.first = {name: _floats(name, array) for name, array in worker.initial().items()}
        """Dense parameters as this trainer would begin."""
        self.shapes = {name: array.shape for name, array in self.first.items()}
        self.dims = {name: int(table.dim) for name, table in worker.tables().items()}
        tables = {
            name: {"dim": int(one.dim), "init": float(one.init), "seed": int(one.seed)}
            for name, one in worker.tables().items()
        }
        if not self.first and not tables:
            raise DataError("the model has no parameters and no tables: there is nothing to train")
        self.told: Json = {
            "code": dict(code),
            "parameters": {name: list(shape) for name, shape in self.shapes.items()},
            "tables": tables,
            "optimizer": dict(worker.optimizer()),
            "rules": dict(rules),
        }
        """As the protocol has it."""
        try:
            json.dumps(self.told, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise DataError(f"optimizer: {one_line(error)}; write numbers and texts") from error


def _floats(name: str, given: Any) -> Any:
    array = np.asarray(given)
    if not np.issubdtype(array.dtype, np.floating):
        raise DataError(f"parameter {name!r} is {array.dtype}: parameters are floating point")
    if not np.isfinite(array).all():
        raise DataError(f"parameter {name!r} begins with NaN or infinity")
    return array.astype(np.float32)  # a copy: the worker trains on its own
