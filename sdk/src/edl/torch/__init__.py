"""Elastic training with PyTorch over process groups of torch; docs/pytorch.md.

EDL decides which trainers train on which records; gloo carries gradients and states. The first
use of a name imports torch.
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
    """Imports the class of this name.

    Raises:
        SettingError: torch is missing or too old.
    """
    if name not in _MODULES:
        raise AttributeError(f"module 'edl.torch' has no attribute {name!r}")
    require_torch()
    return getattr(importlib.import_module(f"edl.torch.{_MODULES[name]}"), name)
