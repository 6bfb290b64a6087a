"""The optimizer's own state by names that are the same in every process.

PaddlePaddle names accumulators by a count of all tensors of the process, makes them in the first
step, and has no public way to make them before; newcomers need them then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle

from edl.errors import CheckpointError
from edl.model.calls import Calls
from edl.model.errors import ModelError

PREFIX = "optimizer/"
_REFUSED = ("LBFGS",)
"""They want to compute losses by themselves."""


class Slots:
    """Of one optimizer."""

    def __init__(self, optimizer: Any, layer: Any, calls: Calls) -> None:
        """Checks what `optimizer(parameters)` returned.

        Raises:
            ModelError: It is no optimizer, or one that cannot be used here.
        """
        _check(optimizer, calls)
        self._optimizer = optimizer
        self._names = {one.name: name for name, one in layer.named_parameters()}
        self._made = False

    @property
    def scheduler(self) -> Any:
        """Its learning-rate schedule, or None."""
        rate = self._optimizer._learning_rate  # noqa: SLF001 - no public name says it
        return rate if isinstance(rate, paddle.optimizer.lr.LRScheduler) else None

    def step(self, scale: float) -> None:
        """One step with the learning rate times `scale`, and one of the schedule."""
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
        """Accumulators by name; as they begin, before the first step."""
        self._make()
        found = {}
        by_kind = self._optimizer._accumulators  # noqa: SLF001 - see the module's docstring
        for kind, tensors in by_kind.items():
            for name, tensor in tensors.items():
                found[f"{PREFIX}{kind}/{self._names.get(name, name)}"] = tensor
        return found

    def extra(self) -> dict[str, Any]:
        """What is no tensor, as JSON."""
        scheduler = self.scheduler
        return {} if scheduler is None else {"scheduler": _plain(scheduler.state_dict())}

    def load(self, extra: Mapping[str, Any]) -> None:
        """Takes over what `extra` gave.

        Raises:
            CheckpointError: One of both has a learning-rate schedule, and the other none.
        """
        scheduler, found = self.scheduler, extra.get("scheduler")
        if (scheduler is None) != (found is None):
            here, there = ("no", "a") if scheduler is None else ("a", "no")
            raise CheckpointError(
                f"the state has {there} learning-rate schedule, but optimizer(parameters) has {here}"
                f"{' one' if here == 'a' else ''}: it is of another program"
            )
        if scheduler is not None:
            scheduler.set_state_dict(dict(found or {}))

    def _make(self) -> None:
        if self._made:
            return
        block = paddle.static.default_main_program().global_block()
        make = self._optimizer._create_accumulators  # noqa: SLF001 - see the module's docstring
        groups = self._optimizer._param_groups  # noqa: SLF001 - as above
        with paddle.no_grad():
            for group in groups:
                if isinstance(group, dict):
                    make(block, {**group, "params": _trained(group["params"])})
                else:
                    make(block, _trained(groups))
                    break
        self._made = True


def _trained(parameters: Any) -> list[Any]:
    return [one for one in parameters if not one.stop_gradient]


def _check(optimizer: Any, calls: Calls) -> None:
    path = calls.model.path
    if not isinstance(optimizer, paddle.optimizer.Optimizer):
        raise ModelError(
            f"optimizer(parameters) of {path} returned {type(optimizer).__name__!r}: it must return "
            "one of paddle.optimizer"
        )
    name = type(optimizer).__name__
    if name in _REFUSED:
        raise ModelError(
            f"optimizer(parameters) of {path}: {name} computes losses by itself and cannot take "
            "gradients that were exchanged; use another, such as Adam or Momentum"
        )
    rate = optimizer._learning_rate  # noqa: SLF001 - no public name says it
    if isinstance(rate, paddle.optimizer.lr.ReduceOnPlateau):
        raise ModelError(
            f"optimizer(parameters) of {path}: ReduceOnPlateau waits for a metric that a step does "
            "not have; use a schedule by steps, such as CosineAnnealingDecay"
        )


def _plain(found: Any) -> Any:
    """As JSON holds it."""
    if isinstance(found, Mapping):
        return {str(name): _plain(one) for name, one in found.items()}
    if isinstance(found, (list, tuple)):
        return [_plain(one) for one in found]
    return found.item() if isinstance(found, np.generic) else found
