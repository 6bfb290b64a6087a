"""A key-value store at the master for a round's members, so that the members need not run a store."""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from functools import partial
from typing import Callable, TypeVar

from edl import clock
from edl.backoff import Backoff
from edl.errors import Refused, RoundOver, Unavailable
from edl.master.client import Client
from edl_protocol.master import MAX_KEYS

T = TypeVar("T")
WAIT_S = 10.0
"""How long one call may wait at the master."""
TIMEOUT_S = 60.0


class RoundStore:
    """The keys of one round, which are deleted when it ends.

    Thread-safe: calls of several threads run one after another.

    All methods raise `RoundOver` if the round has ended or the master was away for too long. The program
    should then report the round as broken and continue in the next one.
    """

    def __init__(
        self, client: Client, number: int, *, prefix: str = "", first_add: int = 0
    ) -> None:
        """Creates the store's client, without calling the master.

        Args:
            client: Calls the master.
            number: The round's number.
            prefix: Text that is put before each key at the master.
            first_add: Additions are numbered from `first_add + 1`. To the master, all processes of a pod
                are one caller, so each process needs its own range of numbers.
        """
        self._client, self._number, self._prefix = client, number, prefix
        self._adding = threading.Lock()
        self._adds = first_add

    def set(self, key: str, value: bytes) -> None:
        """Sets a key of 1 to 250 characters to a value of at most 1 MiB."""
        text = base64.b64encode(value).decode()
        self._retry(lambda: self._client.set_key(self._number, self._prefix + key, text))

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes the given keys if they are set; a round can hold 65 536 keys.

        Raises:
            Refused: The master's version does not support this call.
        """
        for first in range(0, len(keys), MAX_KEYS):
            some = [self._prefix + key for key in keys[first : first + MAX_KEYS]]
            self._retry(partial(self._client.delete_keys, self._number, some))

    def get(self, key: str, timeout_s: float = TIMEOUT_S) -> bytes:
        """Waits until a key is set and returns its value."""
        return self._values((key,), timeout_s)[key]

    def wait(self, keys: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
        """Waits until all given keys are set."""
        if keys:
            self._values(keys, timeout_s)

    def get_all(self, keys: Sequence[str], timeout_s: float = TIMEOUT_S) -> dict[str, bytes]:
        """Waits until all given keys are set and returns their values."""
        return self._values(keys, timeout_s) if keys else {}

    def get_present(self, keys: Sequence[str], wait_s: float) -> dict[str, bytes]:
        """Makes one call, and returns the values of those keys that are set.

        Args:
            keys: Any number of keys.
            wait_s: How long to wait until all keys are set, 0 to 10 s.
        """
        return self._present(keys, wait_s, clock.monotonic_s() + TIMEOUT_S) if keys else {}

    def check(self, keys: Sequence[str]) -> bool:
        """Returns whether all given keys are set."""
        present = self.get_present(keys, 0.0)
        return all(key in present for key in keys)

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter and returns the sum. Counters start at 0; a retried call counts once."""
        with self._adding:
            self._adds += 1
            return self._retry(
                lambda: self._client.add_to_key(
                    self._number, self._prefix + key, amount, self._adds
                )
            )

    def _values(self, keys: Sequence[str], timeout_s: float) -> dict[str, bytes]:
        until_s = clock.monotonic_s() + timeout_s
        while True:
            wait_s = max(0.0, min(WAIT_S, until_s - clock.monotonic_s()))
            values = self._present(keys, wait_s, until_s)
            missing = [key for key in keys if key not in values]
            if not missing:
                return values
            if clock.monotonic_s() >= until_s:
                raise RoundOver(f"key {missing[0]!r} was not set within {timeout_s:g} s")

    def _present(self, keys: Sequence[str], wait_s: float, until_s: float) -> dict[str, bytes]:
        """Waits for keys in one call; returns key -> value for the keys that are set, in the given order."""
        full = [self._prefix + key for key in keys]
        values = self._retry(lambda: self._client.keys(self._number, full, wait_s), until_s)
        named = [(key, values.get(self._prefix + key)) for key in keys]
        return {key: base64.b64decode(value) for key, value in named if value is not None}

    def _retry(self, call: Callable[[], T], until_s: float | None = None) -> T:
        """Makes a call until the master answers, for `TIMEOUT_S` unless a time is given."""
        backoff = Backoff()
        until_s = clock.monotonic_s() + TIMEOUT_S if until_s is None else until_s
        while True:
            try:
                return call()
            except Refused as error:  # noqa: PERF203 - a call costs far more than try
                if error.field != "round":
                    raise
                raise RoundOver(str(error)) from error
            except Unavailable as error:
                pause_s = backoff.next_s()
                if clock.monotonic_s() + pause_s >= until_s:
                    raise RoundOver(str(error)) from error
                threading.Event().wait(pause_s)
