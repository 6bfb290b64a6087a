"""Elastic training with PyTorch on its own process groups; docs/pytorch.md.

EDL decides who trains and on what; gradients and states travel through gloo. torch is imported when
one of these names is used first.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from edl.torch.requirement import require_torch

if TYPE_CHECKING:
    from edl.torch.groups.store import MasterStore
    from edl.torch.step import MemberStep
    from edl.torch.training import Training

__all__ = ["MasterStore", "MemberStep", "Training"]

_MODULES = {"MasterStore": "groups.store", "MemberStep": "step", "Training": "training"}


def __getattr__(name: str) -> Any:
    """Imports what has this name.

    Raises:
        SettingError: torch is missing or too old.
    """
    if name not in _MODULES:
        raise AttributeError(f"module 'edl.torch' has no attribute {name!r}")
    require_torch()
    return getattr(importlib.import_module(f"edl.torch.{_MODULES[name]}"), name)
