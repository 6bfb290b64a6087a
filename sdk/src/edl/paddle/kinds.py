"""Which optimizer of PaddlePaddle is which of the parameter servers; others are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle.optimizer import SGD, Adagrad, Adam, Momentum

from edl.model.errors import ModelError

_KINDS: dict[type, Callable[[Any], dict[str, Any]]] = {
    SGD: lambda _: {"kind": "sgd"},
    Momentum: lambda one: {
        "kind": "momentum",
        "momentum": float(one._momentum),  # noqa: SLF001 - no public name says it
        "nesterov": bool(one._use_nesterov),  # noqa: SLF001 - as above
    },
    Adagrad: lambda one: {
        "kind": "adagrad",
        "initial": float(one.initial_accumulator_value),
        "epsilon": float(one._epsilon),  # noqa: SLF001 - as above
    },
    Adam: lambda one: {
        "kind": "adam",
        "beta1": float(one._beta1),  # noqa: SLF001 - as above
        "beta2": float(one._beta2),  # noqa: SLF001 - as above
        "epsilon": float(one._epsilon),  # noqa: SLF001 - as above
    },
}
"""Exact types: AdamW, for example, is an Adam that decays weights."""


def translate(optimizer: Any, path: Path) -> dict[str, Any]:
    """What the servers are to do, as `Worker.optimizer` says it.

    Raises:
        ModelError: They cannot; the text says what they have.
    """
    make = _KINDS.get(type(optimizer))
    if make is None:
        raise _refused(path, f"no {type(optimizer).__name__}")
    for what, there in (
        ("no weight decay", getattr(optimizer, "regularization", None)),
        ("no weight decay", getattr(optimizer, "_regularization_method", "")),
        ("no gradient clipping", getattr(optimizer, "_grad_clip", None)),
        ("no AMSGrad", getattr(optimizer, "_amsgrad", False)),
        ("no groups of parameters", isinstance(_first(optimizer), dict)),
    ):
        if there:
            raise _refused(path, what)
    rate = optimizer._learning_rate  # noqa: SLF001 - no public name says it
    if not isinstance(rate, float):
        raise _refused(path, "no schedules of the learning rate")
    return {**make(optimizer), "learning_rate": rate}


def _first(optimizer: Any) -> Any:
    return next(iter(optimizer._param_groups or ()), None)  # noqa: SLF001 - as above


def _refused(path: Path, what: str) -> ModelError:
    kinds = ", ".join(one.__name__ for one in _KINDS)
    return ModelError(
        f"optimizer(parameters) of {path}: parameter servers have {what}; they have {kinds} with "
        "a constant learning rate: use one of these, or train with --sync"
    )
