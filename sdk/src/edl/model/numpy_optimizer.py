"""Optimizers for models in plain numpy; the parameter servers support the same kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edl.model.errors import ModelError
from edl.model.rate_schedules import rate_factor, schedule_problem
from edl.servers.worker import global_norm

Arrays = dict[str, Any]
_COMMON: dict[str, Any] = {
    "weight_decay": 0.0,
    "clip_norm": None,
    "clip_value": None,
    "schedule": None,
}
"""Settings that every kind of optimizer has, with defaults; see `edl.servers.Worker.optimizer`."""
_DEFAULTS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "momentum": {"momentum": 0.9, "nesterov": False},
    "adagrad": {"initial": 0.0, "epsilon": 1e-6},
    "adam": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
}
_SLOTS = {"sgd": (), "momentum": ("speed",), "adagrad": ("squares",), "adam": ("mean", "squares")}


_RANGES = {
    "momentum": (0.0, 1.0),
    "beta1": (0.0, 1.0),
    "beta2": (0.0, 1.0),
    "initial": (0.0, 1e6),
    "weight_decay": (0.0, 1.0),
}
"""Setting -> its minimum and its exclusive maximum; the parameter servers have the same limits."""


class NumpyOptimizer:
    """An optimizer that changes a model's parameters in place."""

    def __init__(self, settings: Any, parameters: Arrays, path: Path) -> None:
        """Checks the settings.

        Args:
            settings: The result of the user's `optimizer(parameters)`.
            parameters: Name -> parameter.
            path: The user's file, for error messages.

        Raises:
            ModelError: `settings` is not a valid dict; the message lists the supported kinds or settings.
        """
        self._settings = _checked(settings, path)
        self._parameters = parameters
        kind = self._settings["kind"]
        self._change: Callable[[str, Any], Any] = getattr(self, f"_{kind}")
        initial = self._settings.get("initial", 0.0)
        self.slots: Arrays = {
            f"{slot}/{name}": np.full_like(array, initial)
            for slot in _SLOTS[kind]
            for name, array in parameters.items()
        }
        self.steps = 0

    def step(self, gradient: Mapping[str, Any], scale: float) -> None:
        """Makes one step.

        Args:
            gradient: Name -> gradient.
            scale: Factor by which the learning rate is multiplied.
        """
        factor = rate_factor(self._settings["schedule"], self.steps)
        self.steps += 1
        rate = np.float32(self._settings["learning_rate"] * scale * factor)
        decay = np.float32(self._settings["weight_decay"])
        clipped = self._clipped(gradient)
        for name, array in self._parameters.items():
            if decay:
                np.multiply(array, 1 - rate * decay, out=array)
            np.subtract(array, rate * self._change(name, clipped[name]), out=array)

    def _clipped(self, gradient: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the gradient, or a clipped copy if the settings require clipping."""
        max_value, max_norm = self._settings["clip_value"], self._settings["clip_norm"]
        if max_value is not None:
            return {name: np.clip(slope, -max_value, max_value) for name, slope in gradient.items()}
        if max_norm is None:
            return gradient
        norm = global_norm([gradient[name] for name in self._parameters])
        if norm <= max_norm:
            return gradient
        return {name: slope * np.float32(max_norm / norm) for name, slope in gradient.items()}

    def _sgd(self, _name: str, slope: Any) -> Any:
        return slope

    def _momentum(self, name: str, slope: Any) -> Any:
        speed, decay = self.slots[f"speed/{name}"], np.float32(self._settings["momentum"])
        speed *= decay
        speed += slope
        return slope + decay * speed if self._settings["nesterov"] else speed

    def _adagrad(self, name: str, slope: Any) -> Any:
        squares = self.slots[f"squares/{name}"]
        squares += slope * slope
        return slope / (np.sqrt(squares) + np.float32(self._settings["epsilon"]))

    def _adam(self, name: str, slope: Any) -> Any:
        mean, squares = self.slots[f"mean/{name}"], self.slots[f"squares/{name}"]
        beta1, beta2 = self._settings["beta1"], self._settings["beta2"]
        mean += np.float32(1 - beta1) * (slope - mean)
        squares += np.float32(1 - beta2) * (slope * slope - squares)
        below = np.sqrt(squares / np.float32(1 - beta2**self.steps))
        upper = mean / np.float32(1 - beta1**self.steps)
        return upper / (below + np.float32(self._settings["epsilon"]))


def _checked(settings: Any, path: Path) -> dict[str, Any]:
    kinds = ", ".join(_DEFAULTS)
    kind = settings.get("kind") if isinstance(settings, Mapping) else None
    if not isinstance(settings, Mapping) or kind not in _DEFAULTS:
        raise ModelError(
            f"optimizer(parameters) of {path} returned {str(settings)!r:.80}: for a model in plain "
            f'numpy it must return a dict such as {{"kind": "sgd", "learning_rate": 0.1}}; kinds are '
            f"{kinds}"
        )
    defaults = {**_DEFAULTS[kind], **_COMMON}
    checked = {**defaults, **settings}
    unknown = [name for name in settings if name not in (*defaults, "kind", "learning_rate")]
    problem = f"has no setting {unknown[0]!r}" if unknown else _problem(checked)
    if problem:
        raise ModelError(
            f"optimizer(parameters) of {path}: {kind} {problem}; its settings are "
            f"{', '.join(['learning_rate', *defaults])}"
        )
    return checked


def _problem(settings: Mapping[str, Any]) -> str:
    """Returns what is wrong with the settings; "" if they are valid."""
    if not _is_above_zero(settings.get("learning_rate")):
        return "needs a learning_rate above 0"
    for name, (least, below) in _RANGES.items():
        value = settings.get(name, least)
        if not _is_number(value) or not least <= value < below:
            return f"has {name} {value!r:.40}: it must be from {least:g} to below {below:g}"
    if not _is_above_zero(settings.get("epsilon", 1.0)):
        return f"has epsilon {settings['epsilon']!r:.40}: it must be above 0"
    limits = [name for name in ("clip_norm", "clip_value") if settings[name] is not None]
    for name in limits:
        if not _is_above_zero(settings[name]):
            return f"has {name} {settings[name]!r:.40}: it must be above 0"
    if len(limits) > 1:
        return "has clip_norm and clip_value, which are mutually exclusive"
    return schedule_problem(settings["schedule"])


def _is_above_zero(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
