"""A pseudo-random order of the numbers below n, computed in both directions without storing it.

A Feistel network permutes the numbers of an even number of bits; numbers that fall outside of
the range are permuted again until they fall inside (Black and Rogaway 2002, "Ciphers with
arbitrary finite domains"). It mixes well enough for training; it is not cryptographic.
"""

from hashlib import blake2b

_ROUNDS = 6
_MIX = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


class TaskOrder:
    """A permutation of range(count), determined by a seed; the identity without a seed."""

    __slots__ = ("_bits", "_count", "_keys", "_mask")

    def __init__(self, count: int, seed: int | None, epoch: int) -> None:
        """Determines the order: the same three values always give the same one."""
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
        """The number at a position; both are in range(count)."""
        if not self._keys:
            return position
        number = self._encrypt(position)
        while number >= self._count:
            number = self._encrypt(number)
        return number

    def position_of(self, number: int) -> int:
        """The position of a number: the inverse of `number_at`."""
        if not self._keys:
            return number
        position = self._decrypt(number)
        while position >= self._count:
            position = self._decrypt(position)
        return position

    def _encrypt(self, value: int) -> int:
        bits, mask = self._bits, self._mask
        high, low = value >> bits, value & mask
        for key in self._keys:  # `_scramble`, inlined: this runs for every task
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
