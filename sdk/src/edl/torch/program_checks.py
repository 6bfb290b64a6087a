"""Checks of what a program does with a model and its optimizer: mistakes that would train something else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from edl.errors import DataError


def check_types(model: Any, optimizer: Any) -> None:
    """Refuses what is not a module, and what is not one optimizer.

    Raises:
        DataError: It is not.
    """
    if not isinstance(model, torch.nn.Module):
        raise DataError(f"the model is a {type(model).__name__}: give a torch.nn.Module")
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise DataError(
                f"{name} of the model's state_dict is a {type(value).__name__}, and other members can be given "
                "tensors alone: make it a buffer, or return it as a tensor from get_extra_state"
            )
    if not (hasattr(optimizer, "param_groups") and hasattr(optimizer, "step")):
        raise DataError(
            f"the optimizer is a {type(optimizer).__name__}: give one optimizer of torch.optim; several "
            "learning rates are groups of its parameters"
        )


def check_loss(loss: Any) -> None:
    """Refuses a loss without a gradient.

    Raises:
        DataError: It is not a tensor of one number that depends on what is trained.
    """
    if not isinstance(loss, torch.Tensor):
        what = f"a {type(loss).__name__}"
    elif loss.numel() != 1:
        what = f"a tensor of shape {list(loss.shape)}"
    elif not loss.requires_grad:
        what = "a tensor that does not depend on what is trained (detached, or computed in no_grad)"
    else:
        return
    raise DataError(
        f"step.backward was given {what}: give it the mean loss of the micro-batch, a tensor of one "
        "number, as loss.backward() needs it"
    )


class OptimizerGuard:
    """Refuses steps of the optimizer that the program makes beside those of all members."""

    def __init__(self, optimizer: Any) -> None:
        """Watches an optimizer, if it can be watched."""
        self._is_forbidden = False
        register = getattr(optimizer, "register_step_pre_hook", None)
        self._handle = None if register is None else register(self._check)

    def forbid(self) -> None:
        """The program computes a part of a step from now on."""
        self._is_forbidden = True

    def allow(self) -> None:
        """Allows the program to call it again."""
        self._is_forbidden = False

    @contextmanager
    def allowing(self) -> Iterator[None]:
        """The optimizer makes a step of its own within a program's."""
        was_forbidden, self._is_forbidden = self._is_forbidden, False
        try:
            yield
        finally:
            self._is_forbidden = was_forbidden

    def close(self) -> None:
        """Watches it no longer."""
        if self._handle is not None:
            self._handle.remove()

    def _check(self, *_: Any) -> None:
        if self._is_forbidden:
            raise DataError(
                "the loop calls optimizer.step(), or that of a GradScaler: leave it out, as EDL calls it when "
                "all members have computed their parts (before_step= is called before it)"
            )
