"""Initial values of table rows: a function of seed and id only, the same on every server.

Uses splitmix64 (Steele, Lea and Flood, 2014) as a hash of (seed, id, column): counter-based, so
rows can be computed in any order, and many at once.
"""

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MANTISSA_BITS = 24
_SPAN = np.float32(1 << _MANTISSA_BITS)


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The splitmix64 finaliser: a bijection that mixes all 64 bits."""
    mixed = values + _GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def rows(ids: NDArray[np.int64], dim: int, init: float, seed: int) -> NDArray[np.float32]:
    """Initial rows of these ids: uniform in [-init, init)."""
    if not init:
        return np.zeros((len(ids), dim), np.float32)
    start = np.array([seed], np.int64).view(np.uint64)
    keys = mix(np.ascontiguousarray(ids).view(np.uint64) ^ mix(start))
    columns = np.arange(dim, dtype=np.uint64) * _GOLDEN
    bits = mix(keys[:, None] + columns[None, :]) >> np.uint64(64 - _MANTISSA_BITS)
    unit = bits.astype(np.float32) / _SPAN
    return (unit * np.float32(2) - np.float32(1)) * np.float32(init)
