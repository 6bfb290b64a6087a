"""The records of leases: those that a lease names, or those at its places in an epoch's order.

Data sets of many files are numbered through as well where their order is kept: the master then stores
one number and a digest instead of all names, which would not fit its snapshots.

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

KEPT = "kept-1"
"""Name of the order in which place p holds record p."""
_MANY_FILES = 1_024
"""A data set of more files is described by their digest, where its source reads at random."""
SHUFFLES = ("records", "tasks")
"""What an epoch permutes: its records where the source reads at random, or whole tasks only."""
_MAX_CACHED = 4_096
"""Places of a lease whose order is computed at once."""
_MAX_LEASES = 8
_MAX_EPOCHS = 2


def shuffled_shape(
    source: Source, shuffle_seed: int | None, shuffle: str, *, names_files: bool = False
) -> protocol.Json:
    """Returns the source's part of a data set's description.

    Args:
        source: The source.
        shuffle_seed: None keeps the order.
        shuffle: One of `SHUFFLES`.
        names_files: Whether leases must name files: outputs of predictions are made by file.

    Raises:
        DataError: `shuffle` is not one of them.
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
    """Reads the records of leases of one data set; not thread-safe."""

    def __init__(self, source: Source, description: protocol.Json) -> None:
        """Reads nothing yet.

        Args:
            source: The source.
            description: Of the data set, as `edl.data.batches.describe` returns it.
        """
        self._source = source
        self._count: int = description.get("records") or 0
        self._seed: int = description.get("shuffle_seed") or 0
        order: str | None = description.get("record_order")
        self._random = source if order and isinstance(source, RandomAccess) else None
        self._is_kept = order is not None and order.startswith(KEPT)
        self._cached: dict[tuple[int, int, int], Sequence[int]] = {}
        """The orders of the newest leases, by epoch and places."""
        self._newest: tuple[protocol.Lease | None, Sequence[int]] = (None, ())
        """The lease that was read last, and its records."""
        self._orders: dict[int, RecordOrder] = {}
        """Those of the newest epochs, which may overlap."""

    def read(self, lease: protocol.Lease, start: int, end: int) -> Any:
        """Returns a block: the records at [start, end), which are of the lease.

        Raises:
            RecordError: A record cannot be read.
        """
        if self._random is None:
            return self._source.read(lease.file, start, end)
        numbers = range(start, end) if self._is_kept else self._numbers(lease, start, end)
        return self._random.pick(numbers)

    def batch(self, blocks: Sequence[Any]) -> Any:
        """Joins blocks to a batch; see `Source.batch`."""
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
