"""A pseudo-random order of an epoch's records, computed without storing it (pure).

A generalized Feistel network permutes pairs (left, right) of numbers below the square root of the
number of records, rounded up. A result outside the range of records is permuted again until it falls
inside (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"). This is rare, because there are
hardly more pairs than records. The network's four round functions are tables of random numbers (Luby and
Rackoff 1988), so each place costs a few lookups. The order is mixed well enough for training, but is not
cryptographically secure.
"""

from __future__ import annotations

import importlib
import sys
from array import array
from collections.abc import Sequence
from hashlib import shake_128
from math import isqrt
from typing import Any

METHOD = "feistel-2"
"""Name of this method; every new method needs a new name, so that trainers never mix two methods."""
_LENGTHS = (1, 2, 2, 3)
"""The tables' lengths in multiples of `side`.

Sums are not reduced modulo `side` between rounds; the tables repeat their numbers instead.
"""
_WORD_BYTES = 8
_WHOLE = 2**18
"""Maximum number of records whose order is computed at once, in 1 to 4 ms, and kept in 2 MB.

For the few numbers of a single task, calling numpy would cost twice as much as the arithmetic.
"""
_FEW = 8
"""Plain Python is faster than numpy at computing fewer numbers than this."""


class RecordOrder:
    """A permutation of range(count), determined by a seed and an epoch.

    With numpy, its tables hold 14 * sqrt(count) numbers: 3.5 MB for 10^9 records.
    """

    def __init__(self, count: int, seed: int, epoch: int) -> None:
        """Determines the order; the same three values always give the same order."""
        self._count = count
        self._side = side = isqrt(max(0, count - 1)) + 1
        words = _random_words(f"records/{seed}/{epoch}", len(_LENGTHS) * side)
        columns = [words[i * side : (i + 1) * side] for i in range(len(_LENGTHS))]
        self._numpy = _numpy()
        self._tables: list[Any] = []
        if self._numpy is None:
            for column, length in zip(columns, _LENGTHS):
                self._tables.append([word % side for word in column] * length)
            return
        for column, length in zip(columns, _LENGTHS):
            below = self._numpy.frombuffer(column, self._numpy.uint64) % self._numpy.uint64(side)
            self._tables.append(self._numpy.tile(below.astype(self._numpy.int64), length))
        self._whole: Any = None
        """The whole order, computed at its first use if it is short; otherwise None."""
        reduced = self._numpy.tile(self._numpy.arange(side), max(_LENGTHS))
        self._ends = reduced * side, reduced

    def numbers(self, start: int, end: int) -> Sequence[int]:
        """Returns the numbers at the places [start, end); both numbers and places are in range(count).

        The result is an array of int64, or a list without numpy or for a few numbers of a long order.
        """
        if self._numpy is None or (end - start < _FEW and self._count > _WHOLE):
            return [self.number_at(place) for place in range(start, end)]
        if self._count > _WHOLE:
            part: Sequence[int] = self._compute(start, end)
            return part
        if self._whole is None:
            self._whole = self._compute(0, self._count)
            self._whole.setflags(write=False)  # callers receive parts of it
        whole: Sequence[int] = self._whole
        return whole[start:end]

    def _compute(self, start: int, end: int) -> Any:
        numbers = self._permute_array(self._numpy.arange(start, end))
        while len(outside := (numbers >= self._count).nonzero()[0]):
            numbers[outside] = self._permute_array(numbers[outside])
        return numbers

    def number_at(self, place: int) -> int:
        """Returns the number at a place; both are in range(count)."""
        number = self._permute(place)
        while number >= self._count:
            number = self._permute(number)
        return number

    def _permute(self, value: int) -> int:
        left, right = divmod(value, self._side)
        first, second, third, fourth = self._tables
        left += int(first[right])
        right += int(second[left])
        left += int(third[right])
        right += int(fourth[left])
        return left % self._side * self._side + right % self._side

    def _permute_array(self, values: Any) -> Any:
        """Does the same as `_permute` for each number in an array of int64."""
        first, second, third, fourth = self._tables
        lefts, rights = self._ends
        left = values // self._side
        right = values - left * self._side
        left += first.take(right)
        right += second.take(left)
        left += third.take(right)
        right += fourth.take(left)
        numbers = lefts.take(left)
        numbers += rights.take(right)
        return numbers


def _random_words(key: str, count: int) -> array[int]:
    """Returns 64-bit numbers derived from a text."""
    words = array("Q", shake_128(key.encode()).digest(_WORD_BYTES * count))
    if sys.byteorder == "big":
        words.byteswap()
    return words


def _numpy() -> Any:
    """Returns the module `numpy`, or None if it is not installed."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None
