"""Calls the functions in a user's file, and adds the function, step and trainer to error messages."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from edl.errors import EdlError, RecordError
from edl.model.arrays import to_array
from edl.model.data import count
from edl.model.errors import ModelError, OutOfMemory
from edl.model.functions import SIGNATURES
from edl.model.metrics import (
    MAX_PARTS,
    AdditiveMetric,
    limit_problem,
    part_name,
    value_names,
)
from edl.model.user_errors import is_out_of_memory, summary, wrap_user_error
from edl.model.user_file import Model
from edl.sources.base import Dataset

SMALLER_BATCH = "lower --batch-size"
_LABELS = ("labels", "y")
"""Names of arrays that are taken as labels if the user's file has no `feed`."""


class UserCode:
    """Calls the functions of a user's file in one trainer; raises only `EdlError`."""

    def __init__(self, model: Model, trainer: str = "") -> None:
        """Stores the model, without calling its functions yet.

        Args:
            model: The user's file.
            trainer: This trainer's name, for error messages.
        """
        self.model = model
        self._trainer = trainer
        self._context: tuple[str, Any] = ("", None)
        self.memory_advice = f"{SMALLER_BATCH} or raise --micro-batches"
        """Advice in out-of-memory errors."""

    def set_context(self, activity: str, records: Any = None) -> None:
        """Sets the current activity, such as `step 3`, and its batch, for error messages."""
        self._context = (activity, records)

    def call(self, action: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function and converts its errors.

        Args:
            action: The function's signature or a description of the call, for error messages.
            function: The user's function, or a function that may call user code, such as a layer.
            arguments: Arguments of the function.
        """
        try:
            return function(*arguments)
        except EdlError:
            raise
        except Exception as error:
            raise self.wrap_error(action, error) from error

    def call_function(self, name: str, *arguments: Any) -> Any:
        """Calls a function in the user's file by its name."""
        return self.call(SIGNATURES[name], self.model.functions[name], *arguments)

    def wrap_error(self, action: str, error: BaseException) -> ModelError:
        """Returns the error to raise for an exception in user code."""
        activity, records = self._context
        when = f" at {activity}" if activity else ""
        if records is not None:
            when += f" of {count(records)} records"
        if self._trainer:
            when += f" on {self._trainer}"
        if is_out_of_memory(error):
            return OutOfMemory(
                f"out of memory{when}, in {action}: {self.memory_advice} ({summary(error)})"
            )
        text = f"{action} of {self.model.path} failed{when}"
        return wrap_user_error(self.model.path, text, error)

    def feed(self, records: Any) -> tuple[Any, Any]:
        """Returns a batch's inputs and labels; the labels are None if the records have no labels."""
        if not self.model.has("feed"):
            return _by_name(self.model, records)
        pair = self.call_function("feed", records)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:  # noqa: PLR2004 - pairs have two
            raise ModelError(
                f"feed(records) of {self.model.path} returned {_kind(pair)}: it must return a pair "
                "(inputs, labels), with None for labels if there are none"
            )
        return pair[0], pair[1]

    def metrics(self) -> dict[str, Callable[[Any, Any], Any]]:
        """Returns the user's metrics by name; empty if the file defines no metrics."""
        if not self.model.has("metrics"):
            return {}
        metrics = self.call_function("metrics")
        is_valid = isinstance(metrics, Mapping) and all(
            callable(metric) for metric in metrics.values()
        )
        if not is_valid or "loss" in metrics or not all(isinstance(name, str) for name in metrics):
            raise ModelError(
                f"metrics() of {self.model.path} returned {_kind(metrics)}: it must return a dict of "
                'functions of (outputs, labels), such as {"accuracy": accuracy}, without "loss", which '
                "is always reported"
            )
        self._check_limits(value_names(metrics))
        return dict(metrics)

    def table_options(self, tables: Collection[str]) -> dict[str, dict[str, Any]]:
        """Returns the user's row options by table; tables without row options are left out.

        Args:
            tables: Names of the model's tables.
        """
        if not self.model.has("table_options"):
            return {}
        # imported here, because checking and submitting a file must work without numpy
        row_options = importlib.import_module("edl.servers.worker").ROW_OPTIONS
        options = self.call_function("table_options")
        if not isinstance(options, Mapping) or not all(
            isinstance(values, Mapping) for values in options.values()
        ):
            raise ModelError(
                f"table_options() of {self.model.path} returned {_kind(options)}: it must return a dict "
                'of options for each table, such as {"words": {"admit_after": 3, "evict": "lru"}}'
            )
        for table, values in options.items():
            if table not in tables:
                names = ", ".join(sorted(tables)) or "none"
                raise ModelError(
                    f"table_options() of {self.model.path}: unknown table {table!r:.80}; "
                    f"tables are: {names:.300}"
                )
            unknown = next((option for option in values if option not in row_options), None)
            if unknown is not None:
                raise ModelError(
                    f"table_options() of {self.model.path}: unknown option {unknown!r:.60} of {table!r}; "
                    f"options are: {', '.join(row_options)}"
                )
        return {table: dict(values) for table, values in options.items()}

    def metric_values(
        self, metrics: Mapping[str, Callable[[Any, Any], Any]], outputs: Any, labels: Any
    ) -> dict[str, float]:
        """Returns each metric's value, or an additive metric's sums, as means over one batch."""
        values: dict[str, float] = {}
        for name, metric in metrics.items():
            action = f"metric {name!r}"
            if not isinstance(metric, AdditiveMetric):
                values[name] = self.to_float(action, self.call(action, metric, outputs, labels))
                continue
            sums = self.call(action, metric.sums, outputs, labels)
            if not 0 < len(sums) <= MAX_PARTS:
                raise ModelError(
                    f"{action} of {self.model.path} has {len(sums)} sums: it must have 1 to {MAX_PARTS}"
                )
            records = max(1, count(self._context[1]))
            for index, part in enumerate(sums):
                values[part_name(name, index)] = self.to_float(action, part) / records
        self._check_limits(values)
        return values

    def _check_limits(self, names: Collection[str]) -> None:
        """Refuses names that the master would refuse only later, in the first evaluation after an epoch."""
        problem = limit_problem(names)
        if problem:
            raise ModelError(f"metrics() of {self.model.path} {problem}")

    def to_float(self, action: str, value: Any) -> float:
        """Converts a value that must hold exactly one number; NaN is allowed."""
        try:
            return float(value)
        except Exception as error:
            shape = getattr(value, "shape", None)
            kind = _kind(value) if shape is None else f"an array of shape {list(shape)}"
            raise ModelError(
                f"{action} of {self.model.path} returned {kind}: it must return one number, the mean "
                "over the batch"
            ) from error

    def postprocess(self, outputs: Any) -> Any:
        """Applies the user's `predict` to a model's outputs, if the file defines `predict`."""
        return self.call_function("predict", outputs) if self.model.has("predict") else outputs

    def prediction_arrays(self, predictions: Any, records: int) -> dict[str, Any]:
        """Converts predictions to name -> array with one row per record."""
        if isinstance(predictions, Mapping):
            values_by_name = {str(name): array for name, array in predictions.items()}
        elif isinstance(predictions, (tuple, list)):
            values_by_name = {f"outputs{i}": array for i, array in enumerate(predictions)}
        else:
            values_by_name = {"outputs": predictions}
        arrays = {name: to_array(values) for name, values in values_by_name.items()}
        for name, array in arrays.items():
            if not array.ndim or len(array) != records:
                raise ModelError(
                    f"predictions of {self.model.path}: {name!r} has shape {list(array.shape)} for "
                    f"{records} records: the first axis must be records"
                )
        return arrays


def check_records(model: Model, dataset: Dataset) -> None:
    """Checks with one record that a model without `feed` can use a data set.

    Raises:
        ModelError: Inputs and labels cannot be found in the records, so that every trainer would fail at its
            first batch.
    """
    source = dataset.source
    files = () if model.has("feed") else source.shape()["files"]
    file = next((file["name"] for file in files if file["records"]), None)
    if file is None:
        return
    try:
        block = source.read(file, 0, 1)
    except RecordError:  # training fails only the task with this record
        return
    _by_name(model, source.batch([block]))


def _by_name(model: Model, records: Any) -> tuple[Any, Any]:
    """Finds inputs and labels by the names of a batch's arrays, for models without `feed`."""
    if isinstance(records, tuple) and len(records) == 2:  # noqa: PLR2004 - inputs and labels
        return records[0], records[1]
    if not isinstance(records, dict):
        raise ModelError(
            f"{model.path} has no function feed(records), but a batch is {_kind(records)}: define it "
            "to return (inputs, labels); only arrays of .npz files do not need it"
        )
    names = list(records)
    label = next((name for name in _LABELS if name in records), None)
    if label is None and len(names) == 2:  # noqa: PLR2004 - inputs and labels
        label = names[1]
    if label is None and len(names) > 1:
        raise ModelError(
            f"cannot tell which of the arrays {', '.join(names)} has the labels: name it 'labels', or "
            f"define feed(records) in {model.path}"
        )
    inputs = {name: array for name, array in records.items() if name != label}
    model_inputs = next(iter(inputs.values())) if len(inputs) == 1 else inputs
    return model_inputs, None if label is None else records[label]


def _kind(value: Any) -> str:
    """Describes the type of a value, for messages."""
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} of {', '.join(map(str, value)) or 'nothing'}"
    return f"{type(value).__name__!r}"
