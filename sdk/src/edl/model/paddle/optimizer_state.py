"""The optimizer's state under names that are the same in every process.

PaddlePaddle names accumulators by a per-process counter and creates them in the first step. A trainer that
joins later needs them before its first step, but PaddlePaddle has no public function that creates them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle

from edl.errors import CheckpointError
from edl.model.errors import ModelError
from edl.model.user_code import UserCode

PREFIX = "optimizer/"
_REFUSED = ("LBFGS",)
"""Optimizers that evaluate the loss several times per step."""
_ELEMENTWISE = ("SGD", "Momentum", "Adagrad", "Adadelta", "RMSProp", "Adam", "AdamW", "Adamax")
"""Optimizers that update each element independently; Lamb and LARS use norms of whole parameters."""


class OptimizerState:
    """The accumulators and learning-rate schedule of one optimizer."""

    def __init__(self, optimizer: Any, layer: Any, user_code: UserCode) -> None:
        """Checks the result of `optimizer(parameters)`.

        Raises:
            ModelError: The result is not an optimizer, or is an unsupported optimizer.
        """
        _check(optimizer, user_code)
        self._optimizer = optimizer
        self._names = {parameter.name: name for name, parameter in layer.named_parameters()}
        self._created = False

    @property
    def is_elementwise(self) -> bool:
        """Whether the optimizer updates each element of a parameter and its accumulators independently."""
        kind = type(self._optimizer)
        return kind.__module__.startswith("paddle.") and kind.__name__ in _ELEMENTWISE

    @property
    def scheduler(self) -> Any:
        """The optimizer's learning-rate schedule; None if the rate is constant."""
        rate = self._optimizer._learning_rate  # noqa: SLF001 - it has no public name
        return rate if isinstance(rate, paddle.optimizer.lr.LRScheduler) else None

    def step(self, scale: float) -> None:
        """Makes one step with the learning rate times `scale`, and advances the schedule."""
        scheduler = self.scheduler
        if scale == 1.0:
            self._optimizer.step()
        elif scheduler is None:
            rate = self._optimizer.get_lr()
            self._optimizer.set_lr(rate * scale)
            self._optimizer.step()
            self._optimizer.set_lr(rate)
        else:
            rate = scheduler.last_lr
            scheduler.last_lr = rate * scale
            self._optimizer.step()
            scheduler.last_lr = rate
        if scheduler is not None:
            scheduler.step()

    def tensors(self) -> dict[str, Any]:
        """Returns the accumulators by name; before the first step, they have their initial values."""
        self._create_accumulators()
        accumulators = {}
        by_kind = self._optimizer._accumulators  # noqa: SLF001 - see the module's docstring
        for kind, tensors in by_kind.items():
            for name, tensor in tensors.items():
                accumulators[f"{PREFIX}{kind}/{self._names.get(name, name)}"] = tensor
        return accumulators

    def extra(self) -> dict[str, Any]:
        """Returns the state other than tensors, as JSON: the schedule's state, if there is a schedule."""
        scheduler = self.scheduler
        return {} if scheduler is None else {"scheduler": _to_json(scheduler.state_dict())}

    def load(self, extra: Mapping[str, Any]) -> None:
        """Restores the result of `extra`.

        Raises:
            CheckpointError: Either the state or this optimizer has a learning-rate schedule, but not both.
        """
        scheduler, schedule = self.scheduler, extra.get("scheduler")
        if (scheduler is None) != (schedule is None):
            own_article, state_article = ("no", "a") if scheduler is None else ("a", "no")
            raise CheckpointError(
                f"the state has {state_article} learning-rate schedule, but optimizer(parameters) has {own_article}"
                f"{' one' if own_article == 'a' else ''}: it is of another program"
            )
        if scheduler is not None:
            scheduler.set_state_dict(dict(schedule or {}))

    def _create_accumulators(self) -> None:
        if self._created:
            return
        block = paddle.static.default_main_program().global_block()
        create = self._optimizer._create_accumulators  # noqa: SLF001 - see the module's docstring
        groups = self._optimizer._param_groups  # noqa: SLF001 - it has no public name
        with paddle.no_grad():
            for group in groups:
                if isinstance(group, dict):
                    create(block, {**group, "params": _trainable(group["params"])})
                else:
                    create(block, _trainable(groups))
                    break
        self._created = True


def _trainable(parameters: Any) -> list[Any]:
    return [parameter for parameter in parameters if not parameter.stop_gradient]


def _check(optimizer: Any, user_code: UserCode) -> None:
    path = user_code.model.path
    if not isinstance(optimizer, paddle.optimizer.Optimizer):
        raise ModelError(
            f"optimizer(parameters) of {path} returned {type(optimizer).__name__!r}: it must return "
            "one of paddle.optimizer"
        )
    name = type(optimizer).__name__
    if name in _REFUSED:
        raise ModelError(
            f"optimizer(parameters) of {path}: {name} evaluates losses itself and cannot use "
            "gradients that were exchanged; use another, such as Adam or Momentum"
        )
    rate = optimizer._learning_rate  # noqa: SLF001 - it has no public name
    if isinstance(rate, paddle.optimizer.lr.ReduceOnPlateau):
        raise ModelError(
            f"optimizer(parameters) of {path}: ReduceOnPlateau waits for a metric that a step does "
            "not have; use a schedule by steps, such as CosineAnnealingDecay"
        )


def _to_json(value: Any) -> Any:
    """Converts numpy values to plain JSON values."""
    if isinstance(value, Mapping):
        return {str(name): _to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
