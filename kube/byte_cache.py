"""A cache from raw JSON to its decoded value, limited in bytes; thousands of objects share a few texts.

`kube.podspec` uses it on several threads. Tenants choose the texts, so long ones are not cached.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_TEXT_BYTES = 4096
"""Longer texts are decoded each time; few objects have such a text, and they rarely share it."""


class ByteCache(Generic[T]):
    """Decoded values of recently used texts; all values are dropped when the cache is full."""

    def __init__(self, decode: Callable[[bytes], T], max_bytes: int) -> None:
        """Creates an empty cache.

        Args:
            decode: Returns the value of a text; the value must never be changed.
            max_bytes: Limit for all texts together; their values take about ten times as much memory.
        """
        self._decode = decode
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._values: dict[bytes, T] = {}
        self._bytes = 0

    def __call__(self, text: bytes) -> T:
        """Returns the value of a text."""
        value = self._values.get(text)
        if value is not None:
            return value
        value = self._decode(text)
        if len(text) <= MAX_TEXT_BYTES:
            with self._lock:
                self._keep(text, value)
        return value

    def _keep(self, text: bytes, value: T) -> None:
        if self._bytes + len(text) > self._max_bytes:
            self._values.clear()
            self._bytes = 0
        if text not in self._values:
            self._values[text] = value
            self._bytes += len(text)
