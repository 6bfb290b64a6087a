"""An order of the numbers below n that needs no memory: the n-th place is computed, both ways.

A Feistel network permutes the numbers of an even number of bits; numbers that fall outside of
the range are permuted again until they fall inside (Black and Rogaway 2002, "Ciphers with
arbitrary finite domains"). It mixes well enough for training; it is no secret.
"""

from hashlib import blake2b

_ROUNDS = 6
_MIX = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


class Order:
    """A permutation of range(count) by seed; the identity where there is no seed."""

    __slots__ = ("_bits", "_count", "_keys", "_mask")

    def __init__(self, count: int, seed: int | None, epoch: int) -> None:
        """Fixes the order: the same three values always give the same one."""
        self._count = count
        self._bits = max(1, ((count - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._bits) - 1
        self._keys: tuple[int, ...] = ()
        if seed is not None and count > 1:
            digest = blake2b(f"{seed}/{epoch}".encode(), digest_size=8 * _ROUNDS).digest()
            self._keys = tuple(
                int.from_bytes(digest[8 * i : 8 * i + 8], "big") for i in range(_ROUNDS)
            )

    def at(self, place: int) -> int:
        """What comes at a place; both are in range(count)."""
        if not self._keys:
            return place
        found = self._forth(place)
        while found >= self._count:
            found = self._forth(found)
        return found

    def place(self, number: int) -> int:
        """Where a number comes."""
        if not self._keys:
            return number
        found = self._back(number)
        while found >= self._count:
            found = self._back(found)
        return found

    def _forth(self, value: int) -> int:
        bits, mask = self._bits, self._mask
        left, right = value >> bits, value & mask
        for key in self._keys:  # `_scramble`, written out: this runs for every task
            mixed = ((right + key) * _MIX) & _WORD
            mixed ^= mixed >> 29
            left, right = right, left ^ ((mixed * _MIX & _WORD) >> 32 & mask)
        return left << bits | right

    def _back(self, value: int) -> int:
        left, right = value >> self._bits, value & self._mask
        for key in reversed(self._keys):
            left, right = right ^ self._scramble(left, key), left
        return left << self._bits | right

    def _scramble(self, half: int, key: int) -> int:
        mixed = ((half + key) * _MIX) & _WORD
        mixed ^= mixed >> 29
        return (mixed * _MIX & _WORD) >> 32 & self._mask
