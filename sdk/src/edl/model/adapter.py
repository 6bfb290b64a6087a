"""Adapts a user's model to the training loops, according to the framework that `model()` uses.

A replica trains synchronously (`edl.sync.train`), a worker with parameter servers
(`edl.servers.train`). Both can also evaluate, predict and export.
"""

from __future__ import annotations

import importlib
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, cast

from edl.model import frameworks
from edl.model.errors import ModelError
from edl.model.parameters import MODEL_FILES
from edl.model.seeding import build_model
from edl.model.user_code import UserCode
from edl.model.user_file import Model

if TYPE_CHECKING:
    import numpy as np

    from edl.model.protocols import Adapter, AdapterModule, Lookup, ReplicaAdapter, WorkerAdapter

PathLike = Union[str, "os.PathLike[str]"]
_PLAIN = ("parameters", "forward", "gradients")
"""Attributes that a model in plain numpy must have."""


def replica(model: Model, *, seed: int = 0, trainer: str = "") -> ReplicaAdapter:
    """Returns a replica of a user's model, for synchronous training.

    Args:
        model: The result of `edl.model.load`.
        seed: Seed of the initial parameters.
        trainer: This trainer's name, for error messages.

    Raises:
        ModelError: `model()` or `optimizer(parameters)` raised an error or returned an unsupported
            object.
    """
    user_code = UserCode(model, trainer)
    user_model = build_model(user_code, seed)
    return adapter_module(model, user_model).replica(user_model, user_code)


def worker(model: Model, *, seed: int = 0, trainer: str = "") -> WorkerAdapter:
    """Returns a worker of a user's model, for training with parameter servers.

    Args:
        model: The result of `edl.model.load`.
        seed: Seed of the initial parameters and of initial embedding rows.
        trainer: This trainer's name, for error messages.

    Raises:
        ModelError: See `replica`; also if the servers do not support the optimizer.
    """
    user_code = UserCode(model, trainer)
    user_model = build_model(user_code, seed)
    return adapter_module(model, user_model).worker(user_model, user_code, seed)


def evaluate(adapter: Adapter, records: Any, *, lookup: Lookup | None = None) -> dict[str, float]:
    """Returns the loss, the user's metrics and the sums of additive metrics, as means over one batch.

    Args:
        adapter: A replica or a worker.
        records: A batch of the data set.
        lookup: (table, unique ids) -> rows; required for a worker with tables.
    """
    return adapter.evaluate(records, lookup)


def finish(adapter: Adapter, reported: Mapping[str, float]) -> dict[str, float]:
    """Computes the values of metrics from the master's means over all records.

    Args:
        adapter: A replica or a worker.
        reported: The results of `evaluate`, averaged over all batches, weighted by records.
    """
    return adapter.finish(reported)


def predict(
    adapter: Adapter, records: Any, *, lookup: Lookup | None = None
) -> dict[str, np.ndarray]:
    """Returns the predictions for one batch, as name -> array with one row per record.

    If the user's `predict(outputs)` returns a dict, its keys are the names. The elements of a tuple or list
    are named "outputs0", "outputs1", and so on; any other result is named "outputs". Without a `predict`
    function, the same holds for the model's outputs.
    """
    return adapter.predict(records, lookup)


def export(adapter: Adapter, folder: PathLike, *, lookup: Lookup | None = None) -> None:
    """Writes the model with the user's `export(model, folder)`, or in its framework's usual format.

    The export is written to a temporary folder, which is then renamed. If the folder exists already, the
    export replaces files with the same names and earlier exported models; other files remain.

    Raises:
        ModelError: The model could not be written.
    """
    final = Path(folder).resolve()
    name = f".{final.name}.{secrets.token_hex(4)}"
    hidden = final / name if final.is_dir() else final.with_name(name)
    try:
        hidden.mkdir(parents=True)
        adapter.export(hidden, lookup)
        if not any(hidden.iterdir()):
            raise ModelError(f"export(model, folder) wrote no files, for {final}")
        if final.is_dir():
            _replace(hidden, final)
        else:
            hidden.rename(final)
    except OSError as error:
        raise ModelError(f"cannot write {final}: {error.strerror}") from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _replace(hidden: Path, final: Path) -> None:
    """Moves a complete export into an existing folder, and removes the models of an earlier export."""
    names = {path.name for path in hidden.iterdir()}
    for name in names:
        if (hidden / name).is_dir() and (final / name).is_dir():
            shutil.rmtree(final / name)
        (hidden / name).replace(final / name)
    for name in set(MODEL_FILES) - names:
        (final / name).unlink(missing_ok=True)


def adapter_module(model: Model, user_model: Any) -> AdapterModule:
    """Returns the adapter module for the object returned by `model()`.

    Raises:
        ModelError: The object is not supported.
    """
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(user_model, torch.nn.Module):
        framework = "torch"
    elif "paddle" in sys.modules and isinstance(
        user_model, importlib.import_module("paddle").nn.Layer
    ):
        framework = "paddle"
    elif all(hasattr(user_model, name) for name in _PLAIN):
        framework = "numpy"
    else:
        raise ModelError(
            f"model() of {model.path} returned {type(user_model).__name__!r}: it must return a "
            f"paddle.nn.Layer, a torch.nn.Module, or an object with {', '.join(_PLAIN[:-1])} and {_PLAIN[-1]}"
        )
    return cast("AdapterModule", frameworks.load(frameworks.ADAPTERS, framework))
