"""Who computes which part of a step. Pure.

A step's records are cut into micro-batches that do not depend on the members, so the sum of their
gradients does not either; only who computes which one does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from edl.book import Portion
from edl.wire import Lease


@dataclass(frozen=True)
class Span:
    """Records [start, start + count) of a task."""

    lease: Lease
    start: int
    count: int

    @property
    def portion(self) -> Portion:
        """How the book calls it."""
        return Portion(self.lease, self.count)


@dataclass(frozen=True, eq=False)
class Plan:
    """The records of one global step, as the leader said."""

    name: str
    """Differs between any two plans of a job."""
    spans: tuple[Span, ...]

    @cached_property
    def size(self) -> int:
        """Number of records."""
        return sum(span.count for span in self.spans)


def micro_size(batch_size: int, micro_batches: int) -> int:
    """Records of a micro-batch; the last one of an epoch may have fewer."""
    return -(-batch_size // micro_batches)


def cut(spans: tuple[Span, ...], size: int) -> list[tuple[Span, ...]]:
    """Cuts records into micro-batches of `size`, in order; the last may be smaller."""
    found: list[tuple[Span, ...]] = []
    hand: list[Span] = []
    room = size
    for span in spans:
        start, left = span.start, span.count
        while left:
            taken = min(left, room)
            hand.append(Span(span.lease, start, taken))
            start, left, room = start + taken, left - taken, room - taken
            if not room:
                found.append(tuple(hand))
                hand, room = [], size
    if hand:
        found.append(tuple(hand))
    return found


def share(count: int, rank: int, world: int) -> range:
    """Which of `count` micro-batches a member computes.

    floor(count / world) each, and one more for the first `count mod world` members (as ElasticDL's
    consistent batch does); those of a member are neighbours, so that it reads in one go.
    """
    least, more = divmod(count, world)
    start = rank * least + min(rank, more)
    return range(start, start + least + (rank < more))
