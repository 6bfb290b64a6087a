"""Calls the functions of a user's file, and says which one failed, when, and on which trainer."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from edl.errors import EdlError
from edl.model.data import count
from edl.model.errors import ModelError, OutOfMemory
from edl.model.functions import SIGNATURES
from edl.model.program import Model
from edl.model.trouble import no_memory, short, user_error

FEWER = "lower --batch-size"
_LABELS = ("labels", "y")
"""How an array of labels may be named where there is no `feed`."""


class Calls:
    """Of one trainer. Frameworks' adapters call by it; all it raises is `EdlError`."""

    def __init__(self, model: Model, trainer: str = "") -> None:
        """Calls nothing yet.

        Args:
            model: The user's file.
            trainer: This trainer's name, for messages.
        """
        self.model = model
        self._trainer = trainer
        self._at: tuple[str, Any] = ("", None)
        self.less_memory = f"{FEWER} or raise --micro-batches"
        """What helps where memory is too small."""

    def at(self, place: str, records: Any = None) -> None:
        """What is being done from now on, such as `step 3`, with which batch; for messages."""
        self._at = (place, records)

    def run(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls it.

        Args:
            what: For messages: the function's signature, or what is done.
            function: The user's, or one that may call a part of his, such as a layer.
            arguments: Its.
        """
        try:
            return function(*arguments)
        except EdlError:
            raise
        except Exception as error:
            raise self.error(what, error) from error

    def user(self, name: str, *arguments: Any) -> Any:
        """Calls a function of the file."""
        return self.run(SIGNATURES[name], self.model.functions[name], *arguments)

    def error(self, what: str, error: BaseException) -> ModelError:
        """What to raise for what a call raised."""
        place, records = self._at
        when = f" at {place}" if place else ""
        if records is not None:
            when += f" of {count(records)} records"
        if self._trainer:
            when += f" on {self._trainer}"
        if no_memory(error):
            return OutOfMemory(
                f"out of memory{when}, in {what}: {self.less_memory} ({short(error)})"
            )
        text = f"{what} of {self.model.path} failed{when}"
        return user_error(self.model.path, text, error)

    def feed(self, records: Any) -> tuple[Any, Any]:
        """Inputs and labels of a batch; labels are None where records have none."""
        if not self.model.has("feed"):
            return _by_name(self.model, records)
        found = self.user("feed", records)
        if not isinstance(found, (tuple, list)) or len(found) != 2:  # noqa: PLR2004 - a pair
            raise ModelError(
                f"feed(records) of {self.model.path} returned {_kind(found)}: it must return a pair "
                "(inputs, labels); labels may be None where records have none"
            )
        return found[0], found[1]

    def metrics(self) -> dict[str, Callable[[Any, Any], Any]]:
        """The user's metrics by name; empty where he gives none."""
        if not self.model.has("metrics"):
            return {}
        found = self.user("metrics")
        fine = isinstance(found, Mapping) and all(callable(one) for one in found.values())
        if not fine or "loss" in found or not all(isinstance(name, str) for name in found):
            raise ModelError(
                f"metrics() of {self.model.path} returned {_kind(found)}: it must return functions "
                'of (outputs, labels) by name, such as {"accuracy": accuracy}; "loss" is always '
                "among them and needs none"
            )
        return dict(found)

    def measured(self, name: str, metric: Callable[[Any, Any], Any], *about: Any) -> float:
        """One metric of one batch."""
        what = f"metric {name!r}"
        return self.number(what, self.run(what, metric, *about))

    def number(self, what: str, found: Any) -> float:
        """A number of whatever holds exactly one; NaN is one."""
        try:
            return float(found)
        except Exception as error:
            shape = getattr(found, "shape", None)
            said = _kind(found) if shape is None else f"an array of shape {list(shape)}"
            raise ModelError(
                f"{what} of {self.model.path} returned {said}: it must be one number, the mean over "
                "the batch"
            ) from error

    def predicted(self, outputs: Any) -> Any:
        """What the user's `predict` makes of a model's outputs; the outputs without one."""
        return self.user("predict", outputs) if self.model.has("predict") else outputs

    def rows(self, found: Any, records: int) -> dict[str, Any]:
        """Arrays by name, a row for each record, of what is predicted."""
        if isinstance(found, Mapping):
            named = {str(name): one for name, one in found.items()}
        elif isinstance(found, (tuple, list)):
            named = {f"outputs{i}": one for i, one in enumerate(found)}
        else:
            named = {"outputs": found}
        arrays = {name: _array(one) for name, one in named.items()}
        for name, array in arrays.items():
            if not array.ndim or len(array) != records:
                raise ModelError(
                    f"predictions of {self.model.path}: {name!r} has shape {list(array.shape)} for "
                    f"{records} records: the first axis must be records"
                )
        return arrays


def _by_name(model: Model, records: Any) -> tuple[Any, Any]:
    """Inputs and labels of the arrays of a batch, where the file has no `feed`."""
    if isinstance(records, tuple) and len(records) == 2:  # noqa: PLR2004 - of `edl.from_arrays`
        return records[0], records[1]
    if not isinstance(records, dict):
        raise ModelError(
            f"{model.path} has no function feed(records), which makes (inputs, labels) of a batch "
            f"of {_kind(records)}: only arrays of an .npz file need none"
        )
    names = list(records)
    label = next((name for name in _LABELS if name in records), None)
    if label is None and len(names) == 2:  # noqa: PLR2004 - inputs and labels
        label = names[1]
    if label is None and len(names) > 1:
        raise ModelError(
            f"which of the arrays {', '.join(names)} are labels? Name one of them 'labels', or "
            f"define feed(records) in {model.path}"
        )
    inputs = {name: array for name, array in records.items() if name != label}
    alone = next(iter(inputs.values())) if len(inputs) == 1 else inputs
    return alone, None if label is None else records[label]


def _kind(found: Any) -> str:
    """What something is, for messages."""
    if isinstance(found, (tuple, list)):
        return f"a {type(found).__name__} of {len(found)}"
    if isinstance(found, Mapping):
        return f"a {type(found).__name__} of {', '.join(map(str, found)) or 'nothing'}"
    return f"{type(found).__name__!r}"


def _array(found: Any) -> Any:
    """A numpy array of whatever holds numbers."""
    own = getattr(found, "numpy", None)
    return importlib.import_module("numpy").asarray(found if own is None else own())
