"""Translates PaddlePaddle's optimizers to the parameter servers' optimizers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle.nn import ClipGradByGlobalNorm, ClipGradByValue
from paddle.optimizer import SGD, Adagrad, Adam, AdamW, Momentum, lr
from paddle.regularizer import L2Decay

from edl.model.errors import ModelError


def _adam(optimizer: Any) -> dict[str, Any]:
    return {
        "kind": "adam",
        "beta1": float(optimizer._beta1),  # noqa: SLF001 - it has no public name
        "beta2": float(optimizer._beta2),  # noqa: SLF001 - it has no public name
        "epsilon": float(optimizer._epsilon),  # noqa: SLF001 - it has no public name
    }


_KINDS: dict[type, Callable[[Any], dict[str, Any]]] = {
    SGD: lambda _: {"kind": "sgd"},
    Momentum: lambda optimizer: {
        "kind": "momentum",
        "momentum": float(optimizer._momentum),  # noqa: SLF001 - it has no public name
        "nesterov": bool(optimizer._use_nesterov),  # noqa: SLF001 - it has no public name
    },
    Adagrad: lambda optimizer: {
        "kind": "adagrad",
        "initial": float(optimizer.initial_accumulator_value),
        "epsilon": float(optimizer._epsilon),  # noqa: SLF001 - it has no public name
    },
    Adam: _adam,
    AdamW: lambda optimizer: {
        **_adam(optimizer),
        "weight_decay": float(optimizer._weight_decay),  # noqa: SLF001 - it has no public name
    },
}
"""Type -> function that returns the settings; looked up by exact type, as subclasses may differ."""


def to_server_optimizer(optimizer: Any, path: Path) -> dict[str, Any]:
    """Returns the settings of the servers' optimizer, as described at `Worker.optimizer`.

    Raises:
        ModelError: The servers do not support the optimizer; the message lists what they support.
    """
    describe = _KINDS.get(type(optimizer))
    if describe is None:
        raise _refused(path, f"no {type(optimizer).__name__}")
    settings = {**describe(optimizer), **_decay(optimizer, path), **_clip(optimizer, path)}
    for limitation, setting in (
        ("no AMSGrad", getattr(optimizer, "_amsgrad", False)),
        ("no groups of parameters", isinstance(_first(optimizer), dict)),
        ("no apply_decay_param_fun", getattr(optimizer, "_apply_decay_param_fun", None)),
        ("no lr_ratio", getattr(optimizer, "_lr_ratio", None)),
    ):
        if setting:
            raise _refused(path, limitation)
    rate = optimizer._learning_rate  # noqa: SLF001 - it has no public name
    if isinstance(rate, float):
        return {**settings, "learning_rate": rate}
    base, schedule = _schedule(rate, path)
    return {**settings, "learning_rate": base, "schedule": schedule}


def _decay(optimizer: Any, path: Path) -> dict[str, Any]:
    """Returns the decoupled weight decay, which for plain SGD equals L2 regularization."""
    method = getattr(optimizer, "_regularization_method", "")
    decay = getattr(optimizer, "regularization", None)
    if decay is None and not method:
        return {}
    if type(optimizer) is SGD and isinstance(decay, L2Decay):
        return {"weight_decay": float(decay._coeff)}  # noqa: SLF001 - it has no public name
    raise _refused(path, "weight decay only apart from the gradient (AdamW, or SGD with L2)")


def _clip(optimizer: Any, path: Path) -> dict[str, Any]:
    clip = getattr(optimizer, "_grad_clip", None)
    if clip is None:
        return {}
    if type(clip) is ClipGradByGlobalNorm:
        return {"clip_norm": float(clip.clip_norm)}
    if type(clip) is ClipGradByValue and clip.min == -clip.max:
        return {"clip_value": float(clip.max)}
    raise _refused(path, "gradient clipping only by global norm, and by one absolute value")


def _schedule(rate: Any, path: Path) -> tuple[float, dict[str, Any]]:
    """Returns the base rate and the schedule for a PaddlePaddle scheduler that has made no steps."""
    warmup: dict[str, Any] = {}
    after = rate
    if type(rate) is lr.LinearWarmup:
        after = rate.learning_rate
        base = float(getattr(after, "base_lr", after))
        if rate.end_lr != base:
            raise _refused(path, "a warm-up only up to the rate that follows it")
        warmup = {"warmup": int(rate.warmup_steps), "start": float(rate.start_lr) / base}
    if isinstance(after, (int, float)):
        return float(after), {"kind": "constant", **warmup}
    describe = _SCHEDULES.get(type(after))
    if describe is None or rate.last_epoch:
        kinds = ", ".join(schedule.__name__ for schedule in _SCHEDULES)
        raise _refused(path, f"schedules {kinds} and LinearWarmup from their first step on")
    return float(after.base_lr), {**describe(after), **warmup}


_SCHEDULES: dict[type, Callable[[Any], dict[str, Any]]] = {
    lr.StepDecay: lambda rate: {
        "kind": "step",
        "every": int(rate.step_size),
        "by": float(rate.gamma),
    },
    lr.ExponentialDecay: lambda rate: {"kind": "exponential", "by": float(rate.gamma)},
    lr.CosineAnnealingDecay: lambda rate: {
        "kind": "cosine",
        "versions": int(rate.T_max),
        "lowest": float(rate.eta_min) / float(rate.base_lr),
    },
}


def _first(optimizer: Any) -> Any:
    return next(iter(optimizer._param_groups or ()), None)  # noqa: SLF001 - it has no public name


def _refused(path: Path, limitation: str) -> ModelError:
    kinds = ", ".join(optimizer.__name__ for optimizer in _KINDS)
    return ModelError(
        f"optimizer(parameters) of {path}: parameter servers have {limitation}; they have {kinds}: "
        "use one of these, or train with --sync"
    )
