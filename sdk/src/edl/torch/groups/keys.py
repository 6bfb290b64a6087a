"""Keys of a round for gloo: fetches all members' keys in one call instead of two calls per key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edl.master.round_store import TIMEOUT_S

_TOGETHER_S = 1.0
"""How long a call waits for all members' keys before it waits only for the requested key."""


class Keys(Protocol):
    """The methods of `edl.master.round_store.RoundStore` that groups use."""

    def set(self, key: str, value: bytes) -> None:
        """Sets a key."""
        ...

    def get_all(self, keys: Sequence[str], timeout_s: float) -> dict[str, bytes]:
        """Waits for keys."""
        ...

    def get_present(self, keys: Sequence[str], wait_s: float) -> dict[str, bytes]:
        """Returns the keys that are set, after waiting at most `wait_s` for all of them."""
        ...

    def check(self, keys: Sequence[str]) -> bool:
        """Returns whether keys are set."""
        ...

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter."""
        ...


class GroupKeys:
    """The keys of one round. For each name, each member sets one key, `name/rank`, once.

    gloo waits for each of the keys `0/0`, `0/1` and so on, and reads each twice. Values are cached,
    so a key must not change; counters are never cached. Used by one thread.
    """

    def __init__(self, keys: Keys, world_size: int) -> None:
        """Makes no call yet."""
        self._keys, self._world_size = keys, world_size
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:
        """Sets a key. A key has 1 to 250 characters, a value at most 1 MiB."""
        self._keys.set(key, value)
        self._values[key] = value

    def get(self, key: str, timeout_s: float = TIMEOUT_S) -> bytes:
        """Waits until a key is set, and returns its value."""
        return self.get_all([key], timeout_s)[key]

    def wait(self, keys: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
        """Waits until all of these keys are set."""
        self.get_all(keys, timeout_s)

    def get_all(self, keys: Sequence[str], timeout_s: float = TIMEOUT_S) -> dict[str, bytes]:
        """Waits until all of these keys are set, and returns their values."""
        for key in keys:
            if key not in self._values:
                together = self._of_all_members(key)
                present = self._keys.get_present(together, min(timeout_s, _TOGETHER_S))
                self._values.update(present)
        missing = [key for key in keys if key not in self._values]
        if missing:
            self._values.update(self._keys.get_all(missing, timeout_s))
        return {key: self._values[key] for key in keys}

    def check(self, keys: Sequence[str]) -> bool:
        """Returns whether all of these keys are set."""
        return self._keys.check([key for key in keys if key not in self._values])

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter, which begins at 0; returns the sum."""
        return self._keys.add(key, amount)

    def _of_all_members(self, key: str) -> list[str]:
        """Returns all ranks' keys of the same name, or only the key itself if it contains no rank."""
        name, slash, rank = key.rpartition("/")
        if not (slash and rank.isdigit() and int(rank) < self._world_size):
            return [key]
        return [f"{name}/{other}" for other in range(self._world_size)]
