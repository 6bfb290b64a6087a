"""How rows of tables begin: a function of seed and id alone, whichever server makes them.

Splitmix64 (Steele, Lea and Flood, 2014) as a hash of (seed, id, column): counters instead of a
stream, so that rows need not be made in any order, and all of them are made at once.
"""

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MANTISSA_BITS = 24
_SPAN = np.float32(1 << _MANTISSA_BITS)


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spreads each value over all 64 bits; one to one."""
    found = values + _GOLDEN
    found ^= found >> np.uint64(30)
    found *= _FIRST
    found ^= found >> np.uint64(27)
    found *= _SECOND
    found ^= found >> np.uint64(31)
    return found


def rows(ids: NDArray[np.int64], dim: int, init: float, seed: int) -> NDArray[np.float32]:
    """The rows of these ids as they begin: uniform in [-init, init)."""
    if not init:
        return np.zeros((len(ids), dim), np.float32)
    start = np.array([seed], np.int64).view(np.uint64)
    keys = mix(np.ascontiguousarray(ids).view(np.uint64) ^ mix(start))
    columns = np.arange(dim, dtype=np.uint64) * _GOLDEN
    bits = mix(keys[:, None] + columns[None, :]) >> np.uint64(64 - _MANTISSA_BITS)
    unit = bits.astype(np.float32) / _SPAN
    return (unit * np.float32(2) - np.float32(1)) * np.float32(init)
