"""Seeds the random generators that user code may use, and builds models with them."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edl.model.user_code import UserCode


def build_model(user_code: UserCode, seed: int) -> Any:
    """Calls `model()`; with the same seed, the result has the same arrays in every process."""
    seed_everything(seed)
    return user_code.call_function("model")


def seed_everything(seed: int) -> None:
    """Seeds the generators of Python and, if they are imported, of numpy, PaddlePaddle and torch."""
    random.seed(seed)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    framework: Any = sys.modules.get("paddle")
    if framework is not None:
        framework.seed(seed)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
