"""Puts batches together from tasks: the reader's work, without its thread."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from edl.book import Book, Portion
from edl.errors import RecordError, one_line
from edl.sources.base import Source
from edl.wire import Lease

log = logging.getLogger("edl")


@dataclass(frozen=True)
class Batch:
    """What one step trains on."""

    data: Any
    portions: tuple[Portion, ...]

    @property
    def size(self) -> int:
        """Number of records."""
        return sum(portion.size for portion in self.portions)


class Maker:
    """Puts batches together, of one epoch of one data set each. The reader thread's own."""

    def __init__(self, source: Source, book: Book, batch_size: int) -> None:
        self._source, self._book, self._batch_size = source, book, batch_size
        self._blocks: list[Any] = []
        self._portions: list[Portion] = []
        self.size = 0
        """Records of the batch that is not yet full."""
        self._place: tuple[Lease, int] | None = None

    def add(self, lease: Lease | None) -> tuple[Batch | None, int, bool]:
        """Reads on in a task, or completes the batch in hand if there is none.

        Returns:
            A batch, if one is ready; how many records of the task are no more unread; whether all
            of it is read, or it is not worth to be read on.
        """
        if lease is None or not self._fits(lease):
            return self._flush(), 0, False
        at = self._place[1] if self._place and self._place[0] is lease else lease.start
        if not self._book.holds(lease):
            return None, lease.end - at, True
        count = min(self._batch_size - self.size, lease.end - at)
        try:
            block = self._source.read(lease.file, at, at + count)
        except Exception as error:  # noqa: BLE001 - a program's own reader may raise anything
            self._fail(lease, error)
            return None, lease.end - at, True
        self._blocks.append(block)
        self._portions.append(Portion(lease, count))
        self.size += count
        self._place = (lease, at + count)
        full = self.size >= self._batch_size
        return (self._flush() if full else None), count, at + count >= lease.end

    def _fits(self, lease: Lease) -> bool:
        """One batch never holds records of two epochs."""
        if not self._portions:
            return True
        first = self._portions[0].lease
        return (first.epoch, first.kind, first.dataset, first.model_version) == (
            lease.epoch,
            lease.kind,
            lease.dataset,
            lease.model_version,
        )

    def _fail(self, lease: Lease, error: Exception) -> None:
        """Tells the book, and takes the task's records out of the batch in hand."""
        if isinstance(error, RecordError):
            self._book.fail(lease, error.why, error.record)
            log.warning("task %s failed: %s", lease.task, error)
        else:
            self._book.fail(lease, one_line(error))
            log.warning("task %s failed: %s", lease.task, one_line(error))
        kept = [i for i, portion in enumerate(self._portions) if portion.lease is not lease]
        self._blocks = [self._blocks[i] for i in kept]
        self._portions = [self._portions[i] for i in kept]
        self.size = sum(portion.size for portion in self._portions)

    def _flush(self) -> Batch | None:
        """What is in hand, less what was lost meanwhile."""
        kept = [i for i, portion in enumerate(self._portions) if self._book.holds(portion.lease)]
        blocks = [self._blocks[i] for i in kept]
        portions = tuple(self._portions[i] for i in kept)
        self._blocks, self._portions, self.size = [], [], 0
        if not portions:
            return None
        try:
            return Batch(self._source.batch(blocks), portions)
        except Exception as error:  # noqa: BLE001 - a program's own collate may raise anything
            for portion in portions:
                self._book.fail(portion.lease, f"batch: {one_line(error)}")
            log.warning("no batch could be made of %s: %s", portions[0].lease.task, one_line(error))
            return None
