"""Translates optimizers of PaddlePaddle to those of the parameter servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle.optimizer import SGD, Adagrad, Adam, Momentum

from edl.model.errors import ModelError

_KINDS: dict[type, Callable[[Any], dict[str, Any]]] = {
    SGD: lambda _: {"kind": "sgd"},
    Momentum: lambda optimizer: {
        "kind": "momentum",
        "momentum": float(optimizer._momentum),  # noqa: SLF001 - no public name for it
        "nesterov": bool(optimizer._use_nesterov),  # noqa: SLF001 - as above
    },
    Adagrad: lambda optimizer: {
        "kind": "adagrad",
        "initial": float(optimizer.initial_accumulator_value),
        "epsilon": float(optimizer._epsilon),  # noqa: SLF001 - as above
    },
    Adam: lambda optimizer: {
        "kind": "adam",
        "beta1": float(optimizer._beta1),  # noqa: SLF001 - as above
        "beta2": float(optimizer._beta2),  # noqa: SLF001 - as above
        "epsilon": float(optimizer._epsilon),  # noqa: SLF001 - as above
    },
}
"""Exact types only: AdamW, for example, is a subclass of Adam that decays weights."""


def to_server_optimizer(optimizer: Any, path: Path) -> dict[str, Any]:
    """Returns the settings of the servers' optimizer, as in `Worker.optimizer`.

    Raises:
        ModelError: They do not support it; the text lists what they support.
    """
    describe = _KINDS.get(type(optimizer))
    if describe is None:
        raise _refused(path, f"no {type(optimizer).__name__}")
    for limitation, setting in (
        ("no weight decay", getattr(optimizer, "regularization", None)),
        ("no weight decay", getattr(optimizer, "_regularization_method", "")),
        ("no gradient clipping", getattr(optimizer, "_grad_clip", None)),
        ("no AMSGrad", getattr(optimizer, "_amsgrad", False)),
        ("no groups of parameters", isinstance(_first(optimizer), dict)),
    ):
        if setting:
            raise _refused(path, limitation)
    rate = optimizer._learning_rate  # noqa: SLF001 - no public name for it
    if not isinstance(rate, float):
        raise _refused(path, "no schedules of the learning rate")
    return {**describe(optimizer), "learning_rate": rate}


def _first(optimizer: Any) -> Any:
    return next(iter(optimizer._param_groups or ()), None)  # noqa: SLF001 - as above


def _refused(path: Path, limitation: str) -> ModelError:
    kinds = ", ".join(optimizer.__name__ for optimizer in _KINDS)
    return ModelError(
        f"optimizer(parameters) of {path}: parameter servers have {limitation}; they have {kinds} with "
        "a constant learning rate: use one of these, or train with --sync"
    )
