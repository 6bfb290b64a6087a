"""Gives a user's model to the engines, by the adapter of the framework that `model()` builds with.

A replica trains synchronously (`edl.sync.train`), a worker with parameter servers
(`edl.servers.train`). Both can also evaluate, predict and export, which the commands need.
"""

from __future__ import annotations

import importlib
import os
import random
import secrets
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, cast

from edl.model.calls import Calls
from edl.model.errors import ModelError
from edl.model.program import Model

if TYPE_CHECKING:
    import numpy as np

    from edl.model.protocols import Adapter, Home, Lookup, ReplicaAdapter, WorkerAdapter

PathLike = Union[str, "os.PathLike[str]"]
_PLAIN = ("parameters", "forward", "gradients")
"""What a model without a framework has."""


def replica(model: Model, *, seed: int = 0, trainer: str = "") -> ReplicaAdapter:
    """A replica of a user's model, for synchronous training.

    Args:
        model: From `edl.model.load`.
        seed: Of the first parameters.
        trainer: This trainer's name, for messages.

    Raises:
        ModelError: `model()` or `optimizer(parameters)` gave what cannot be used, or raised.
    """
    calls = Calls(model, trainer)
    made = build(calls, seed)
    return home(model, made).replica(made, calls)


def worker(model: Model, *, seed: int = 0, trainer: str = "") -> WorkerAdapter:
    """A worker of a user's model, for parameter servers.

    Args:
        model: From `edl.model.load`.
        seed: Of the first parameters, and of rows of embeddings.
        trainer: This trainer's name, for messages.

    Raises:
        ModelError: As for `replica`; also where the servers have no such optimizer.
    """
    calls = Calls(model, trainer)
    made = build(calls, seed)
    return home(model, made).worker(made, calls, seed)


def evaluate(adapter: Adapter, records: Any, *, lookup: Lookup | None = None) -> dict[str, float]:
    """Means over one batch: the loss, and the user's metrics.

    Args:
        adapter: A replica or a worker.
        records: A batch, as the data set makes it.
        lookup: (table, unique ids) -> rows, for a worker that has tables.
    """
    return adapter.evaluate(records, lookup)


def predict(
    adapter: Adapter, records: Any, *, lookup: Lookup | None = None
) -> dict[str, np.ndarray]:
    """What the model says of one batch: arrays by name, a row for each record.

    The user's `predict(outputs)` names them if it returns a dict; "outputs" otherwise.
    """
    return adapter.predict(records, lookup)


def export(adapter: Adapter, folder: PathLike, *, lookup: Lookup | None = None) -> None:
    """Writes the model, by the user's `export(model, folder)` or in its framework's usual file.

    The folder appears when it is whole; one of that name is replaced then.

    Raises:
        ModelError: It could not be written.
    """
    final = Path(folder)
    hidden = final.with_name(f".{final.name}.{secrets.token_hex(4)}")
    try:
        hidden.mkdir(parents=True)
        adapter.export(hidden, lookup)
        if not any(hidden.iterdir()):
            raise ModelError(f"export(model, folder) wrote nothing into its folder, for {final}")
        if final.exists():
            shutil.rmtree(final)
        hidden.rename(final)
    except OSError as error:
        raise ModelError(f"{final} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def build(calls: Calls, seed: int) -> Any:
    """What `model()` returns: the same arrays wherever the seed is the same."""
    sow(seed)
    return calls.user("model")


def sow(seed: int) -> None:
    """Seeds all that a user's code may draw from."""
    random.seed(seed)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    paddle: Any = sys.modules.get("paddle")
    if paddle is not None:
        paddle.seed(seed)


def home(model: Model, made: Any) -> Home:
    """The adapters' module for what `model()` returned.

    Raises:
        ModelError: There is none.
    """
    if "paddle" in sys.modules and isinstance(made, importlib.import_module("paddle").nn.Layer):
        return cast("Home", importlib.import_module("edl.paddle"))
    if all(hasattr(made, name) for name in _PLAIN):
        return cast("Home", importlib.import_module("edl.model.plain"))
    raise ModelError(
        f"model() of {model.path} returned {type(made).__name__!r}: it must return a "
        f"paddle.nn.Layer, or an object with {', '.join(_PLAIN[:-1])} and {_PLAIN[-1]}"
    )
