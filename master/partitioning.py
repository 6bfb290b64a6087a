"""The tasks of an epoch: their records, and the order in which they are leased. Pure.

Both are computed from a task's number and never stored, so memory does not grow with the data.
"""

from bisect import bisect_right
from hashlib import blake2b
from itertools import accumulate
from typing import NamedTuple

from edl_protocol.fields import MOST

from runtime.call_checks import Json

MAX_RECORDS = MOST
"""Maximum number of records of a data set, all epochs together."""
_ROUNDS = 6
_MIX = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


class Span(NamedTuple):
    """Records [start, end) of a data set, or of one of its files."""

    start: int
    end: int
    file: str | None = None

    @property
    def size(self) -> int:
        """Number of records."""
        return self.end - self.start


class Partitioning:
    """The records of each task of an epoch. A task never has records of two files."""

    def __init__(self, shape: Json) -> None:
        """Reads the description of a data set: `records`, `files` or `stream`, and `task_records`."""
        self._step: int = shape["task_records"]
        self._records: int | None = shape.get("records")
        self._files: list[Json] | None = shape.get("files")
        self._ends = list(accumulate(self._tasks_of(file["records"]) for file in self._files or ()))
        self.count: int | None = None
        """Number of tasks; None for a stream, which has no end."""
        if self._files is not None:
            self.count = self._ends[-1]
        elif self._records is not None:
            self.count = self._tasks_of(self._records)

    @property
    def records(self) -> int | None:
        """Number of records of one epoch; None for a stream."""
        if self._files is not None:
            return sum(int(file["records"]) for file in self._files)
        return self._records

    @property
    def bound(self) -> int:
        """Number of tasks; for a stream, the number of tasks with records below 2^53."""
        return MAX_RECORDS // self._step if self.count is None else self.count

    def has(self, index: int) -> bool:
        """Returns whether a task of this index exists."""
        return 0 <= index < self.bound

    def span(self, index: int) -> Span:
        """Returns the records of a task that exists: 0 <= index < count."""
        if self._files is None:
            start = index * self._step
            end = start + self._step
            return Span(start, end if self._records is None else min(end, self._records))
        place = bisect_right(self._ends, index)
        file = self._files[place]
        start = (index - (self._ends[place - 1] if place else 0)) * self._step
        return Span(start, min(start + self._step, file["records"]), file["name"])

    def _tasks_of(self, records: int) -> int:
        return -(-records // self._step)


class TaskOrder:
    """A pseudo-random permutation of range(count), determined by a seed; the identity if there is no seed.

    A Feistel network permutes the numbers of an even number of bits. Numbers outside of the range
    are permuted again until they fall inside (Black and Rogaway 2002, "Ciphers with arbitrary finite
    domains"). It mixes well enough for training; it is not cryptographic.
    """

    __slots__ = ("_bits", "_count", "_keys", "_mask")

    def __init__(self, count: int, seed: int | None, epoch: int) -> None:
        """Creates the order; the same three values always give the same order."""
        self._count = count
        self._bits = max(1, ((count - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._bits) - 1
        self._keys: tuple[int, ...] = ()
        if seed is not None and count > 1:
            digest = blake2b(f"{seed}/{epoch}".encode(), digest_size=8 * _ROUNDS).digest()
            self._keys = tuple(
                int.from_bytes(digest[8 * i : 8 * i + 8], "big") for i in range(_ROUNDS)
            )

    def number_at(self, position: int) -> int:
        """Returns the number at a position; both are in range(count)."""
        if not self._keys:
            return position
        number = self._encrypt(position)
        while number >= self._count:
            number = self._encrypt(number)
        return number

    def position_of(self, number: int) -> int:
        """Returns the position of a number: the inverse of `number_at`."""
        if not self._keys:
            return number
        position = self._decrypt(number)
        while position >= self._count:
            position = self._decrypt(position)
        return position

    def _encrypt(self, value: int) -> int:
        bits, mask = self._bits, self._mask
        high, low = value >> bits, value & mask
        for key in self._keys:  # `_scramble` inlined, because this runs for every task
            mixed = ((low + key) * _MIX) & _WORD
            mixed ^= mixed >> 29
            high, low = low, high ^ ((mixed * _MIX & _WORD) >> 32 & mask)
        return high << bits | low

    def _decrypt(self, value: int) -> int:
        high, low = value >> self._bits, value & self._mask
        for key in reversed(self._keys):
            high, low = low ^ self._scramble(high, key), high
        return high << self._bits | low

    def _scramble(self, half: int, key: int) -> int:
        mixed = ((half + key) * _MIX) & _WORD
        mixed ^= mixed >> 29
        return (mixed * _MIX & _WORD) >> 32 & self._mask
