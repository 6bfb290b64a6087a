"""A torch.distributed store that uses a round's keys at the master: needs no port, outlives rank 0."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from edl.errors import EdlError
from edl.master.round_store import TIMEOUT_S, RoundStore
from edl.torch.groups.keys import GroupKeys


class MasterStore(dist.Store):  # type: ignore[misc]  # torch's base class is untyped
    """A `torch.distributed.Store` that uses the keys that the members of one round share.

    All calls raise `RoundOver` once the round is over. `append` and queues are missing, because
    torch's process groups do not need them. Keep a reference while torch uses the store, because
    torch does not keep the Python object.
    """

    def __init__(self, keys: RoundStore | GroupKeys | None = None) -> None:
        """Makes no call yet.

        Args:
            keys: Keys of the round, such as `edl.Rounds.store`; None if `follow` is called first.
        """
        super().__init__()
        self._own_keys = keys
        self._timeout_s = TIMEOUT_S

    def follow(self, other: MasterStore) -> None:
        """Uses the keys of another store from now on, such as those of a later round."""
        self._own_keys = other._own_keys

    @property
    def _keys(self) -> RoundStore | GroupKeys:
        if self._own_keys is None:
            raise EdlError("this store has no keys yet: give it the keys of a round")
        return self._own_keys

    @property
    def timeout(self) -> timedelta:
        """How long a call waits for a key."""
        return timedelta(seconds=self._timeout_s)

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets how long a call waits for a key."""
        self._timeout_s = timeout.total_seconds()

    def set(self, key: str, value: Any) -> None:
        """Sets a key to bytes or a string."""
        self._keys.set(key, _as_bytes(value))

    def get(self, key: str) -> bytes:
        """Waits until a key is set, and returns its value."""
        return self._keys.get(key, self._timeout_s)

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter; returns the sum."""
        return self._keys.add(key, amount)

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        """Sets a key if no other member has set it; returns its value.

        Raises:
            EdlError: `expected` is not "": keys can only be claimed, not replaced.
        """
        if expected:
            raise EdlError(f"the master's keys can be claimed, not replaced (key {key!r:.80})")
        if self.add(f"{key}/claims", 1) == 1:
            self.set(key, desired)
            return _as_bytes(desired)
        return self.get(key)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Waits until all of these keys are set."""
        self._keys.wait(keys, self._timeout_s if timeout is None else timeout.total_seconds())

    def check(self, keys: Sequence[str]) -> bool:
        """Returns whether all of these keys are set."""
        return self._keys.check(keys)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Waits until all of these keys are set, and returns their values, in one call."""
        values = self._keys.get_all(keys, self._timeout_s)
        return [values[key] for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        """Sets several keys."""
        for key, value in zip(keys, values):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        """Returns True: with `multi_get` and `multi_set`, gloo gets all addresses in one call."""
        return True

    def append(self, key: str, value: Any) -> None:  # noqa: ARG002 - the interface has it
        """Raises `EdlError`: the master's keys cannot be appended to."""
        raise EdlError(f"the master's keys have no append (key {key!r:.80}): use set or add")

    def delete_key(self, key: str) -> bool:  # noqa: ARG002 - the interface has it
        """Returns False: this store deletes keys only when their round ends."""
        return False


def _as_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
