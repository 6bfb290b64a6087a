"""Reads the records of leases.

The numbers in a lease are record numbers, unless the data set's description has a `record_order`: then
they are places. Place p of an epoch holds the p-th record of the epoch's order, which depends on the
seed and the epoch only. All trainers compute the same order, and the master need not know it.

A data set of many files has a `record_order` even if its order is kept. The master then stores the
number of records and a digest instead of all file names, which would not fit its snapshots.
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

KEPT = "kept-1"
"""Name of the order in which place p holds record p."""
_MANY_FILES = 1_024
"""Maximum number of files that a description lists if the source has random access."""
SHUFFLES = ("records", "tasks")
"""What an epoch permutes: its records, if the source has random access, or whole tasks only."""
_MAX_CACHED = 4_096
"""Maximum size of a lease whose record numbers are computed all at once and cached."""
_MAX_LEASES = 8
_MAX_EPOCHS = 2


def shuffled_shape(
    source: Source, shuffle_seed: int | None, shuffle: str, *, names_files: bool = False
) -> protocol.Json:
    """Returns the source's part of a data set's description.

    Args:
        source: The source.
        shuffle_seed: Seed of the order; None keeps the order of the source.
        shuffle: One of `SHUFFLES`.
        names_files: Whether leases must name files, because predictions are written file by file.

    Raises:
        DataError: `shuffle` is not one of `SHUFFLES`.
    """
    if shuffle not in SHUFFLES:
        raise DataError(f"shuffle is {shuffle!r:.40}: it must be one of {', '.join(SHUFFLES)}")
    shape = source.shape()
    is_random = isinstance(source, RandomAccess) and not shape.get("stream")
    files = shape.get("files")
    is_kept = shuffle_seed is None or shuffle == "tasks"
    if not is_random or (is_kept and (names_files or len(files or ()) <= _MANY_FILES)):
        return shape
    records = shape["records"] if files is None else sum(f["records"] for f in files)
    digest = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:32]
    method = KEPT if is_kept else record_order.METHOD
    return {"records": records, "record_order": f"{method} {digest}"}


class LeasedRecords:
    """Reads the records of one data set's leases; not thread-safe."""

    def __init__(self, source: Source, description: protocol.Json) -> None:
        """Creates the reader, without reading records yet.

        Args:
            source: The source.
            description: The data set's description, as `edl.data.batches.describe` returns it.
        """
        self._source = source
        self._count: int = description.get("records") or 0
        self._seed: int = description.get("shuffle_seed") or 0
        order: str | None = description.get("record_order")
        self._random = source if order and isinstance(source, RandomAccess) else None
        self._is_kept = order is not None and order.startswith(KEPT)
        self._cached: dict[tuple[int, int, int], Sequence[int]] = {}
        """(epoch, start, end) of the newest leases -> the numbers of their records."""
        self._newest: tuple[protocol.Lease | None, Sequence[int]] = (None, ())
        """The lease that was read last, and its record numbers."""
        self._orders: dict[int, RecordOrder] = {}
        """Epoch -> its order, for the newest epochs; leases of two epochs may overlap in time."""

    def read(self, lease: protocol.Lease, start: int, end: int) -> Any:
        """Returns a block of the records at [start, end), a part of the lease.

        Raises:
            RecordError: A record cannot be read.
        """
        if self._random is None:
            return self._source.read(lease.file, start, end)
        numbers = range(start, end) if self._is_kept else self._numbers(lease, start, end)
        return self._random.pick(numbers)

    def batch(self, blocks: Sequence[Any]) -> Any:
        """Joins blocks into a batch; see `Source.batch`."""
        return self._source.batch(blocks)

    def _numbers(self, lease: protocol.Lease, start: int, end: int) -> Sequence[int]:
        if lease is self._newest[0]:
            return self._newest[1][start - lease.start : end - lease.start]
        if lease.size > _MAX_CACHED:
            return self._order(lease.epoch).numbers(start, end)
        key = (lease.epoch, lease.start, lease.end)
        numbers = self._cached.get(key)
        if numbers is None:
            if len(self._cached) >= _MAX_LEASES:
                del self._cached[next(iter(self._cached))]
            numbers = self._order(lease.epoch).numbers(lease.start, lease.end)
            self._cached[key] = numbers
        self._newest = lease, numbers
        return numbers[start - lease.start : end - lease.start]

    def _order(self, epoch: int) -> RecordOrder:
        order = self._orders.get(epoch)
        if order is None:
            if len(self._orders) >= _MAX_EPOCHS:
                del self._orders[next(iter(self._orders))]
            order = self._orders[epoch] = RecordOrder(self._count, self._seed, epoch)
        return order
