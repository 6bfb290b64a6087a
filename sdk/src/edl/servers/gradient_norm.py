"""The norm of a gradient, by which it is clipped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def global_norm(arrays: Sequence[Any]) -> float:
    """Returns the Euclidean norm of all arrays together."""
    squares = (np.einsum("i,i->", flat, flat, dtype=np.float64) for flat in map(np.ravel, arrays))
    return math.sqrt(sum(float(square) for square in squares))
