"""A pseudo-random order of the records of an epoch, computed without storing it (pure).

A generalized Feistel network permutes the pairs (left, right) of numbers below the square root of
the count; numbers that fall outside of the range are permuted again until they fall inside (Black
and Rogaway 2002, "Ciphers with arbitrary finite domains"), which few do: the domain has hardly
more numbers than the range. It mixes well enough for training; it is not cryptographic.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from hashlib import blake2b
from math import isqrt
from typing import Any

METHOD = "feistel-1"
"""Name of this order: another one gets another name, so that trainers never mix two."""
_ROUNDS = 6
_MIX = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_FEW = 8
"""Numbers of which plain Python computes fewer faster than numpy."""


class RecordOrder:
    """A permutation of range(count), determined by a seed and an epoch."""

    def __init__(self, count: int, seed: int, epoch: int) -> None:
        """Determines the order: the same three values always give the same one."""
        self._count = count
        self._side = isqrt(max(0, count - 1)) + 1
        digest = blake2b(f"records/{seed}/{epoch}".encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = [int.from_bytes(digest[8 * i : 8 * i + 8], "big") for i in range(_ROUNDS)]

    def numbers(self, start: int, end: int) -> Sequence[int]:
        """The numbers at the places [start, end); all are in range(count).

        With numpy an array of int64, otherwise a list.
        """
        numpy = _numpy() if end - start >= _FEW else None
        if numpy is None:
            return [self.number_at(place) for place in range(start, end)]
        places = numpy.arange(start, end, dtype=numpy.uint64)
        numbers = self._permute_array(numpy, places)
        outside = numpy.flatnonzero(numbers >= self._count)
        while len(outside):
            numbers[outside] = self._permute_array(numpy, numbers[outside])
            outside = outside[numbers[outside] >= self._count]
        result: Sequence[int] = numbers.astype(numpy.int64)
        return result

    def number_at(self, place: int) -> int:
        """The number at a place; both are in range(count)."""
        number = self._permute(place)
        while number >= self._count:
            number = self._permute(number)
        return number

    def _permute(self, value: int) -> int:
        left, right = divmod(value, self._side)
        for key in self._keys:
            mixed = (right + key) * _MIX & _WORD
            mixed = (mixed ^ mixed >> 29) * _MIX & _WORD
            left, right = right, (left + (mixed >> 32)) % self._side
        return left * self._side + right

    def _permute_array(self, numpy: Any, values: Any) -> Any:
        """As `_permute`, of an array of uint64, whose arithmetic is modulo 2^64 by itself."""
        word = numpy.uint64
        side, mix, low, high = word(self._side), word(_MIX), word(29), word(32)
        left = values // side
        right = values - left * side
        for key in self._keys:
            mixed = (right + word(key)) * mix
            mixed ^= mixed >> low
            mixed *= mix
            mixed >>= high
            mixed += left
            left, right = right, mixed % side
        return left * side + right


def _numpy() -> Any:
    """The module numpy; None where it is not installed."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None
