"""Plans of steps, and which member computes which micro-batch of a step (pure).

A step's micro-batches do not depend on the number of members, so the sum of their gradients does not
depend on it either. Only the assignment of micro-batches to members depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from edl.master.leases import Portion
from edl.master.protocol import Lease


@dataclass(frozen=True)
class Span:
    """Records [start, start + count) of a task."""

    lease: Lease
    start: int
    count: int

    @property
    def portion(self) -> Portion:
        """The records as a portion of the lease table."""
        return Portion(self.lease, self.count)


@dataclass(frozen=True, eq=False)
class Plan:
    """The leader's plan of one global step."""

    name: str
    """Unique in a job."""
    spans: tuple[Span, ...]

    @cached_property
    def size(self) -> int:
        """Number of records."""
        return sum(span.count for span in self.spans)


Assignment = list[tuple[int, tuple[Span, ...]]]
"""The micro-batches of a step that one member computes, each with its index in the step."""


def micro_size(batch_size: int, micro_batches: int) -> int:
    """Returns the number of records of a micro-batch; an epoch's last one may have fewer."""
    return -(-batch_size // micro_batches)


def split(spans: tuple[Span, ...], size: int) -> list[tuple[Span, ...]]:
    """Splits records into micro-batches of `size`, in order; the last may be smaller."""
    micro_batches: list[tuple[Span, ...]] = []
    pending: list[Span] = []
    missing = size
    for span in spans:
        start, remaining = span.start, span.count
        while remaining:
            count = min(remaining, missing)
            pending.append(Span(span.lease, start, count))
            start, remaining, missing = start + count, remaining - count, missing - count
            if not missing:
                micro_batches.append(tuple(pending))
                pending, missing = [], size
    if pending:
        micro_batches.append(tuple(pending))
    return micro_batches


def assigned_indices(count: int, rank: int, world_size: int) -> range:
    """Returns which of `count` micro-batches a member computes, as indices.

    Each member computes floor(count / world_size), and the first `count mod world_size` members
    compute one more, as in ElasticDL's consistent batch. A member's micro-batches are adjacent, so
    that it reads their records together.
    """
    least, remainder = divmod(count, world_size)
    start = rank * least + min(rank, remainder)
    return range(start, start + least + (rank < remainder))
