"""Checks for mistakes in how a program uses its model and optimizer, which would train a wrong model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from edl.errors import DataError


def check_types(model: Any, optimizer: Any) -> None:
    """Checks that `model` is a module and `optimizer` a single optimizer.

    Raises:
        DataError: The model or the optimizer cannot be used.
    """
    if not isinstance(model, torch.nn.Module):
        raise DataError(f"the model is a {type(model).__name__}: give a torch.nn.Module")
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise DataError(
                f"{name} of the model's state_dict is a {type(value).__name__}, and members can only send "
                "tensors: make it a buffer, or return it as a tensor from get_extra_state"
            )
    if not (hasattr(optimizer, "param_groups") and hasattr(optimizer, "step")):
        raise DataError(
            f"the optimizer is a {type(optimizer).__name__}: give one optimizer of torch.optim; for several "
            "learning rates, use parameter groups"
        )


def check_loss(loss: Any) -> None:
    """Checks that a loss has a gradient.

    Raises:
        DataError: The loss is not a one-element tensor that depends on trained parameters.
    """
    if not isinstance(loss, torch.Tensor):
        what = f"a {type(loss).__name__}"
    elif loss.numel() != 1:
        what = f"a tensor of shape {list(loss.shape)}"
    elif not loss.requires_grad:
        what = (
            "a tensor that does not depend on trained parameters (detached, or computed in no_grad)"
        )
    else:
        return
    raise DataError(
        f"step.backward was given {what}: give it the mean loss of the micro-batch, a tensor of one "
        "number, as loss.backward() needs it"
    )


class OptimizerGuard:
    """Refuses optimizer steps that the program makes itself."""

    def __init__(self, optimizer: Any) -> None:
        """Hooks into the optimizer, if it accepts hooks."""
        self._is_forbidden = False
        register = getattr(optimizer, "register_step_pre_hook", None)
        self._handle = None if register is None else register(self._check)

    def forbid(self) -> None:
        """Forbids steps, while the program computes a part of a step."""
        self._is_forbidden = True

    def allow(self) -> None:
        """Allows steps again."""
        self._is_forbidden = False

    @contextmanager
    def allowing(self) -> Iterator[None]:
        """A context in which the optimizer may make a step."""
        was_forbidden, self._is_forbidden = self._is_forbidden, False
        try:
            yield
        finally:
            self._is_forbidden = was_forbidden

    def close(self) -> None:
        """Removes the hook."""
        if self._handle is not None:
            self._handle.remove()

    def _check(self, *_: Any) -> None:
        if self._is_forbidden:
            raise DataError(
                "the loop calls optimizer.step() or GradScaler.step(): leave it out, as EDL calls it when "
                "all members have computed their parts (before_step= is called before it)"
            )
