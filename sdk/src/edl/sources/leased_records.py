"""The records of leases: those that a lease names, or those at its places in an epoch's order.

A description with a `record_order` numbers places: place p of an epoch holds the p-th record of the
epoch's order, which depends on the seed and the epoch only. The master need not know the order;
all trainers compute the same one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from edl.errors import DataError
from edl.master import protocol
from edl.sources import record_order
from edl.sources.base import RandomAccess, Source
from edl.sources.record_order import RecordOrder

SHUFFLES = ("records", "tasks")
"""What an epoch permutes: its records where the source reads at random, or whole tasks only."""
_MAX_CACHED = 4_096
"""Places of a lease whose order is computed at once."""
_MAX_LEASES = 8


def shuffled_shape(source: Source, shuffle_seed: int | None, shuffle: str) -> protocol.Json:
    """Returns the source's part of a data set's description.

    Args:
        source: The source.
        shuffle_seed: None keeps the order.
        shuffle: One of `SHUFFLES`.

    Raises:
        DataError: `shuffle` is not one of them.
    """
    if shuffle not in SHUFFLES:
        raise DataError(f"shuffle is {shuffle!r:.40}: it must be one of {', '.join(SHUFFLES)}")
    shape = source.shape()
    is_random = isinstance(source, RandomAccess) and not shape.get("stream")
    if shuffle_seed is None or shuffle == "tasks" or not is_random:
        return shape
    files = shape.get("files")
    records = shape["records"] if files is None else sum(f["records"] for f in files)
    digest = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:32]
    return {"records": records, "record_order": f"{record_order.METHOD} {digest}"}


class LeasedRecords:
    """Reads the records of leases of one data set. Used by one thread."""

    def __init__(self, source: Source, description: protocol.Json) -> None:
        """Reads nothing yet.

        Args:
            source: The source.
            description: Of the data set, as `edl.data.batches.describe` returns it.
        """
        self._source = source
        self._count: int = description.get("records") or 0
        self._seed: int = description.get("shuffle_seed") or 0
        is_shuffled = description.get("record_order") is not None
        self._random = source if is_shuffled and isinstance(source, RandomAccess) else None
        self._cached: dict[tuple[int, int, int], Sequence[int]] = {}
        """The orders of the newest leases, by epoch and places."""

    def read(self, lease: protocol.Lease, start: int, end: int) -> Any:
        """Returns a block: the records at [start, end), which are of the lease.

        Raises:
            RecordError: A record cannot be read.
        """
        if self._random is None:
            return self._source.read(lease.file, start, end)
        return self._random.pick(self._numbers(lease, start, end))

    def batch(self, blocks: Sequence[Any]) -> Any:
        """Joins blocks to a batch, as in `Source`."""
        return self._source.batch(blocks)

    def _numbers(self, lease: protocol.Lease, start: int, end: int) -> Sequence[int]:
        if lease.size > _MAX_CACHED:
            return RecordOrder(self._count, self._seed, lease.epoch).numbers(start, end)
        key = (lease.epoch, lease.start, lease.end)
        numbers = self._cached.get(key)
        if numbers is None:
            if len(self._cached) >= _MAX_LEASES:
                del self._cached[next(iter(self._cached))]
            order = RecordOrder(self._count, self._seed, lease.epoch)
            numbers = self._cached[key] = order.numbers(lease.start, lease.end)
        return numbers[start - lease.start : end - lease.start]
