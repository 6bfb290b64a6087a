"""Leases of a small data set, for tests of plans and lease tables."""

from edl.master.protocol import Lease
from edl.sync.plans import Plan, Span


def lease(index: int = 0, size: int = 10, *, epoch: int = 0, attempt: int = 1) -> Lease:
    """The task of this index: records [index * size, (index + 1) * size)."""
    name = f"points/{epoch}/{index}"
    begin = index * size
    return Lease(name, attempt, "training", "points", epoch, begin, begin + size, None, 60.0)


def plan(name: str, *spans: tuple[Lease, int, int]) -> Plan:
    """A plan of such parts: lease, first record, number of records."""
    return Plan(name, tuple(Span(*span) for span in spans))
